"""Steps of the trained model as programs, with what the integer golden core makes of them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.lower.layout import Image
from disc.lower.plan import NetworkPlan
from disc.lower.shape import BlockShape
from disc.program import MaskMode, Program
from disc.tables import THRESHOLD_BITS, step_ratio_table
from golden.executor.block import step_kind
from golden.executor.network import (
    image_state,
    network_scalars,
    output,
    put_image_state,
    put_network,
    put_step,
)
from golden.integer.block import Sparsity
from golden.integer.calibration import load_calibration
from golden.integer.lowering import Lowering
from golden.integer.network import ImageState, StepResult, denoise_step
from golden.integer.quantise import quantise
from golden.model.checkpoint import load_checkpoint

__all__ = ["KINDS", "TrainedStep", "trained_step"]

_USE = Sparsity(mode=MaskMode.MASKED, make_hot=False)
KINDS: dict[str, Sparsity] = {
    "dense": Sparsity(make_hot=False),
    "ctr": Sparsity(make_hot=False),
    "st": _USE,
    "both": _USE,
    "refresh": Sparsity(mode=MaskMode.GENERATE),
}
"""What a step does: everything; fewer rows; kept columns; both; everything, and make masks."""

_TIMESTEPS = 600.0, 550.0
_HOT_TAU = 1.0


@dataclass(frozen=True, eq=False)
class TrainedStep:
    """A step of some blocks of the model, with branch sums, forecast and final layer."""

    config: CoreConfig
    plan: NetworkPlan
    program: Program
    dram: NDArray[np.uint8]
    """Image ahead of the step."""
    result: StepResult
    """What the integer golden core computes."""
    state: ImageState
    """What it keeps."""

    def require(self, dram: NDArray[np.uint8]) -> None:
        """Raise AssertionError unless an image behind the step holds result and state."""
        image = Image(self.plan.layout)
        image.data = dram
        found = image_state(self.plan, image)
        pairs = {
            "out": (output(self.plan, image), self.result.out),
            "x": (image.get(self.plan.shared.x, self.result.x.shape, "<i2"), self.result.x),
        }
        for name in ("last", "before", "last_step", "before_step"):
            pairs[name] = (getattr(found, name), getattr(self.state, name))
        for layer, (a, b) in enumerate(zip(found.blocks, self.state.blocks, strict=True)):
            for name in ("k", "v", "mask", "residual", "hot"):
                if getattr(b, name) is not None:
                    pairs[f"block {layer}, {name}"] = (getattr(a, name), getattr(b, name))
        wrong = [name for name, (a, b) in pairs.items() if not np.array_equal(a, b)]
        assert not wrong, f"differ from the integer golden core: {', '.join(wrong)}"


def trained_step(
    config: CoreConfig,
    kind: str,
    *,
    checkpoint: str = "digits-256",
    layers: slice = slice(None),
    fraction: float = 0.25,
    alpha: float = 2.0,
    hot: bool = False,
    fill: bool = False,
    hash_: BankHash | None = None,
    seed: int = 0,
) -> TrainedStep:
    """Return a step behind a refresh, which made its caches and masks.

    Parameters
    ----------
    kind
        One of `KINDS`.
    layers
        Which of the model's blocks; they are run one behind the other, whatever stood between.
    fraction
        Of the tokens that `ctr` and `both` compute.
    alpha
        Masks keep probabilities of at least alpha / N.
    hot
        All but the refresh compute the hot columns of the MLP only.
    fill
        The refresh fills masks up.

    Raises
    ------
    ValueError
        There is no such kind or no such layer, or the model does not fit the configuration.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: must be one of {', '.join(KINDS)}, got {kind!r}")
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction: must be in (0, 1], got {fraction}")
    model = load_checkpoint(checkpoint)
    c = model.config
    tokens = c.tokens
    if not 0 <= alpha <= tokens:
        raise ValueError(f"alpha: must be in [0, {tokens}] (N), got {alpha}")
    calibration = load_calibration(checkpoint)
    lowering = Lowering(model, calibration, config.number, hot_tau=_HOT_TAU if hot else None)
    depth = len(range(c.depth)[layers])
    if not depth:
        raise ValueError(f"layer: must be in [0, {c.depth - 1}], none of these is chosen")
    plan = NetworkPlan(
        config,
        BlockShape(tokens, c.dim, c.heads, c.mlp_ratio * c.dim),
        depth,
        c.patch**2 * c.channels,
        hash_=hash_ or BankHash.xor_fold(config.array.banks, config.local_bits),
    )
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    z, y = torch.randn(1, 1, c.size_px, c.size_px), torch.tensor([3])
    refresh = replace(
        KINDS["refresh"],
        threshold=round(alpha / tokens * (1 << THRESHOLD_BITS)),
        fill=plan.hash if fill else None,
    )
    ratios = np.array(step_ratio_table(1.0))
    state = ImageState.empty(depth, c.heads, tokens, c.head_dim)
    everything = np.arange(tokens)
    for step, timestep in enumerate(_TIMESTEPS):
        t = torch.tensor([timestep])
        constants = lowering.constants[calibration.group(timestep)]
        constants = replace(constants, blocks=constants.blocks[layers])
        vectors = lowering.vectors(t, y)
        vectors = replace(vectors, blocks=vectors.blocks[layers])
        with torch.no_grad():
            embedding = quantise(
                model.embed(z)[0].numpy(), float(calibration.residual), config.number.residual_bits
            )
        last = step == len(_TIMESTEPS) - 1
        sparsity = KINDS[kind] if last and kind != "refresh" else refresh
        selected = everything
        if last and kind in ("ctr", "both"):
            selected = np.sort(rng.permutation(tokens)[: max(1, round(fraction * tokens))])
        before = deepcopy(state)
        result = denoise_step(
            embedding, selected, step, constants, vectors, state, sparsity, ratios, config.number
        )
        z = z - 0.05 * model.unpatchify(
            torch.from_numpy((result.out * lowering.calibration.final_out).astype(np.float32))[None]
        )
    image = Image(plan.layout, seed=seed)
    put_network(plan, image, constants, ratios)
    put_step(plan, image, embedding, selected, step, vectors)
    put_image_state(plan, image, before)
    program = plan.program(
        network_scalars(constants, ratios),
        step_kind(constants.blocks[0], sparsity, len(selected)),
        tokens - len(selected),
    )
    return TrainedStep(config, plan, program, image.data, result, state)
