"""CTR and ST on transformers as they are: attach, sample, read the report, detach.

::

    pipe = DiTPipeline.from_pretrained("path/to/checkpoint")
    ctr, st = CTRConfig(reuse=0.75), STConfig(alpha=2.0)
    accelerated = golden.attach(pipe.transformer, steps=20, ctr=ctr, st=st)
    pipe(class_labels=[207], num_inference_steps=20)
    print(accelerated.report())
    golden.detach(pipe.transformer)

Works on `golden.model.DiT`, and on `DiTTransformer2DModel` and `PixArtTransformer2DModel` of
diffusers, inside their stock pipelines.  The model's own forward runs; hooks at both ends of the
block stack take the selected tokens out and put them back, so that everything between computes
those alone, and the attention in between remembers keys, values, masks and residuals.
"""

from golden.accelerate.session import Accelerator, attach, detach

__all__ = ["Accelerator", "attach", "detach"]
