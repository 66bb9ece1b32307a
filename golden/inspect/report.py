"""The figures of a study, and the document of the numbers behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from golden.inspect.plot_attention import plot_attention
from golden.inspect.plot_images import plot_images
from golden.inspect.plot_latent import concentration, plot_latent
from golden.inspect.plot_steps import plot_density, plot_similarity
from golden.inspect.plot_work import Saving, Size, plot_flops, plot_savings
from golden.inspect.study import Study
from golden.plotting import styled

FIGURES = ("similarity", "latent", "attention", "flops", "savings", "images", "density")


def measured_savings(study: Study) -> list[Saving]:
    """Counted in the study's runs, by rising resolution."""
    runs = {study.name: (study.model.config.size_px, study.accelerated.work), **study.others}
    found = [Saving(name, px, w.tokens, w.savings, True) for name, (px, w) in runs.items()]
    return sorted(found, key=lambda saving: saving.tokens)


def figures(study: Study, sizes: Sequence[Size], saved: Sequence[Saving]) -> dict[str, Figure]:
    """Draw all of `FIGURES`.

    Args:
        study: the runs.
        sizes: networks whose work is broken down.
        saved: measured and derived savings.
    """
    run, step = study.accelerated, study.latent_step
    work = run.work
    with styled():
        return {
            "similarity": plot_similarity(study.dense.similarity, study.name),
            "latent": plot_latent(
                run.latents[step - 1],
                run.decisions[step],
                run.latents[step],
                study.model.config.patch,
            ),
            "attention": plot_attention(
                study.dense.probabilities,
                study.pair_statistics(),
                study.dense.persistence,
                layer=study.layer,
                head=study.head,
            ),
            "flops": plot_flops(sizes),
            "savings": plot_savings(saved, study.name),
            "images": plot_images(
                study.dense.images,
                run.images,
                study.labels,
                study.psnr_per_image.tolist(),
                f"{study.name}, {study.schedule.steps} steps: "
                f"{1 - work.savings['total']:.0%} of the FLOPs; {_fidelity(study)}",
            ),
            "density": plot_density(
                study.dense.persistence.density,
                run.head_density,
                study.schedule,
                study.st.alpha,
            ),
        }


def summary(study: Study, saved: Sequence[Saving]) -> dict[str, Any]:
    """The findings, a number each."""
    similarity, persistence = study.dense.similarity, study.dense.persistence
    decision = study.accelerated.decisions[study.latent_step]
    found: dict[str, Any] = {
        "checkpoint": study.name,
        "schedule": str(study.schedule),
        "cosine, attention output, adjacent steps": similarity.branches["attention"].mean(),
        "cosine, MLP output, adjacent steps": similarity.branches["mlp"].mean(),
        "change that a quarter of the tokens has": concentration(decision.scores, 0.25),
        "mask density": persistence.density.mean(),
    }
    for age in sorted({0, 1, min(3, persistence.distance)}):
        name = f"{age} step{'s' * (age != 1)} old"
        found[f"probability under a mask {name}"] = np.nanmean(persistence.mass[:, age])
    found["PSNR to the dense images, dB"] = study.psnr
    for saving in saved:
        found[f"FLOPs saved, {saving.model}, {saving.resolution_px} px"] = saving.savings["total"]
    return {
        name: value if isinstance(value, str) else float(value) for name, value in found.items()
    }


def document(study: Study, sizes: Sequence[Size], saved: Sequence[Saving]) -> dict[str, Any]:
    """Everything that the figures show, for JSON; what was not observed is null."""
    similarity, persistence = study.dense.similarity, study.dense.persistence
    run = study.accelerated
    decision = run.decisions[study.latent_step]
    return {
        "summary": {name: _number(value) for name, value in summary(study, saved).items()},
        "seed": study.seed,
        "schedule": study.schedule.model_dump(mode="json"),
        "schedule_digest": study.schedule.digest,
        "similarity": {
            "axes": "branches and other_tokens [step, layer], step s + 1 against s; "
            "sums [step, quantile 0.1 0.5 0.9]",
            "branches": {k: _list(v) for k, v in similarity.branches.items()},
            "other_tokens": {k: _list(v) for k, v in similarity.other_tokens.items()},
            "sums": _list(similarity.sums),
        },
        "latent": {
            "step": decision.step,
            "before": _list(run.latents[decision.step - 1]),
            "now": _list(run.latents[decision.step]),
            "reference": _list(decision.z_ref),
            "scores": _list(decision.scores),
            "selected": decision.selected.tolist(),
        },
        "attention": {
            "axes": "mask_iou and kept_mass [step, age of the mask, layer, head]",
            "layer": study.layer,
            "head": study.head,
            "alpha": study.st.alpha,
            "pairs": [
                {
                    "steps": list(pair),
                    "same_side": found["same_side"],
                    "rank_correlation": found["rank_correlation"],
                    "curve": {name: _list(v) for name, v in found["curve"].items()},
                }
                for pair, found in study.pair_statistics().items()
            ],
            "mask_iou": _list(persistence.iou),
            "kept_mass": _list(persistence.mass),
        },
        "flops": [
            {
                "model": size.model,
                "resolution_px": size.resolution_px,
                "tokens": size.tokens,
                "flops": {kind: 2 * macs for kind, macs in size.work.items()},
                "attention_share": size.attention_share,
            }
            for size in sizes
        ],
        "savings": {
            "rows": [
                {
                    "model": saving.model,
                    "resolution_px": saving.resolution_px,
                    "tokens": saving.tokens,
                    "measured": saving.measured,
                    **saving.savings,
                }
                for saving in saved
            ],
            "measured": {
                study.name: run.work.to_json(),
                **{name: work.to_json() for name, (_, work) in study.others.items()},
            },
        },
        "images": {
            "labels": study.labels,
            "psnr_db": _list(study.psnr_per_image),
            "psnr_of_all_db": _number(study.psnr),
        },
        "density": {
            "axes": "[step, layer, head]",
            "mask_made_in_step": _list(persistence.density),
            "computed": _list(run.head_density),
        },
    }


def _fidelity(study: Study) -> str:
    if not np.isfinite(study.psnr):
        return "images equal the dense ones"
    median = np.median(study.psnr_per_image)
    return f"PSNR to the dense images {study.psnr:.1f} dB (median image {median:.1f} dB)"


def _number(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _list(values: NDArray[Any]) -> Any:
    """Nested lists, 6 significant digits, None for NaN and infinity."""
    if values.ndim == 0:
        return _number(float(values))
    return [_list(row) for row in values]
