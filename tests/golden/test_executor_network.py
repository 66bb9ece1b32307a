"""All blocks of the trained model in one program, step after step, against `denoise_step`."""

from __future__ import annotations

import numpy as np
import torch

from disc.hashing import BankHash
from disc.lower.layout import Image
from disc.lower.plan import NetworkPlan
from disc.lower.shape import BlockShape
from disc.program import Fence, MaskMode
from disc.program.check import check
from disc.tables import step_ratio_table
from golden.executor import execute, random_order
from golden.executor.block import step_kind
from golden.executor.network import (
    image_state,
    network_scalars,
    output,
    put_image_state,
    put_network,
    put_step,
)
from golden.executor.random_blocks import TINY
from golden.integer.block import Sparsity
from golden.integer.calibration import load_calibration
from golden.integer.lowering import Lowering
from golden.integer.network import ImageState, denoise_step
from golden.integer.quantise import quantise
from golden.model.checkpoint import load_checkpoint

USE = Sparsity(mode=MaskMode.MASKED, make_hot=False)


def require_equal_states(found: ImageState, expected: ImageState) -> None:
    for name in ("last", "before", "last_step", "before_step"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    for layer, (a, b) in enumerate(zip(found.blocks, expected.blocks, strict=True)):
        for name in ("k", "v", "mask", "residual", "hot"):
            assert np.array_equal(getattr(a, name), getattr(b, name)), (layer, name)


def test_steps_of_the_trained_model() -> None:
    """Refresh that makes masks, two steps under CTR and ST with forecast, one that holds."""
    model = load_checkpoint("digits-256")
    lowering = Lowering(model, load_calibration("digits-256"), TINY.number, hot_tau=1.0)
    c = model.config
    outputs = c.patch**2 * c.channels
    plan = NetworkPlan(
        TINY,
        BlockShape(c.tokens, c.dim, c.heads, 4 * c.dim),
        c.depth,
        outputs,
        hash_=BankHash.xor_fold(TINY.array.banks, TINY.local_bits),
    )
    state = ImageState.empty(c.depth, c.heads, c.tokens, c.head_dim)
    refresh = Sparsity(mode=MaskMode.GENERATE, threshold=round(2 / c.tokens * (1 << 20)))
    ratios = np.array(step_ratio_table(1.0))
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    z, y = torch.randn(1, 1, c.size_px, c.size_px), torch.tensor([3])
    for step, (sparsity, fraction, table) in enumerate(
        [(refresh, 1.0, ratios), (refresh, 1.0, ratios), (USE, 0.25, ratios), (USE, 0.1, None)]
    ):
        t = torch.tensor([600.0 - 50 * step])
        constants = lowering.constants[lowering.calibration.group(float(t[0]))]
        vectors = lowering.vectors(t, y)
        with torch.no_grad():
            embedding = quantise(
                model.embed(z)[0].numpy(),
                float(lowering.calibration.residual),
                TINY.number.residual_bits,
            )
        count = round(fraction * c.tokens)
        selected = np.sort(rng.permutation(c.tokens)[:count])
        image = Image(plan.layout, seed=step)
        put_network(plan, image, constants, table)
        put_step(plan, image, embedding, selected, step, vectors)
        put_image_state(plan, image, state)
        kind = step_kind(constants.blocks[0], sparsity, count)
        program = plan.program(network_scalars(constants, table), kind, c.tokens - count)
        assert not any(isinstance(command, Fence) for command in program.commands)
        if step in (0, 3):
            check(program, TINY, image.data)
        order = random_order(program.commands, rng)
        image.data = execute(program, TINY, image.data, order=order)
        result = denoise_step(
            embedding, selected, step, constants, vectors, state, sparsity, table, TINY.number
        )
        assert np.array_equal(output(plan, image), result.out)
        require_equal_states(image_state(plan, image), state)
        z = z - 0.05 * model.unpatchify(
            torch.from_numpy((result.out * lowering.calibration.final_out).astype(np.float32))[None]
        )
    assert 0.01 < state.blocks[2].mask.mean() < 0.7
    assert len(np.unique(result.out)) > 100
