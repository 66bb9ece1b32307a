"""The record of work against what PyTorch executes, and against the networks of the estimates."""

from typing import Any

import numpy as np
import pytest
import torch
from small_diffusers import (
    DEPTH,
    HEADS,
    KINDS,
    LATENT,
    TEXT,
    TOKENS,
    WIDTH,
    attached,
    conditioning,
    evaluate,
    latent_walk,
    transformer,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from disc.schedule import CTRConfig, STConfig
from golden.accelerate import Accelerator
from sim_models.networks import Network, operators, total_macs

BATCH = 2
SETTINGS: dict[str, dict[str, Any]] = {
    "CTR, fraction": {"ctr": CTRConfig(reuse=0.6)},
    "CTR, threshold": {"ctr": CTRConfig(threshold=0.4)},
    "ST": {"st": STConfig(alpha=1)},
    "ST, heads share": {"st": STConfig(alpha=1, heads="shared")},
    "ST, residual dropped": {"st": STConfig(alpha=1, share_residual=False)},
    "both": {"ctr": CTRConfig(threshold=0.4), "st": STConfig(alpha=1)},
}


def executed(model: Any, z: torch.Tensor, given: dict[str, torch.Tensor], step: int) -> int:
    """Floating-point operations of one call, two a multiply-accumulate."""
    # The counter does not know the fused kernels of the CPU, hence plain matrix products.
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(z, timestep=torch.full((len(z),), 900 - step), **given)
    return counter.get_total_flops()


def expected_flops(accelerator: Accelerator, row_macs: int) -> int:
    """Derived from the record: two operations a MAC, and what PyTorch does beyond it.

    Beyond it, since PyTorch's kernels are dense: padding of shorter token lists up to the longest
    of the batch; attention entries that a mask drops; and in steps that make masks, the masked
    output beside the dense one.

    Args:
        accelerator: at the end of a step.
        row_macs: of a row in all layers with weights, per image.
    """
    record = accelerator.log[-1]
    longest = max(1, *record.computed)
    padding = sum(longest - count for count in record.computed)
    attention = 2 * BATCH * longest * TOKENS * WIDTH * DEPTH
    st = accelerator.schedule.st
    if st and record.refresh and st.share_residual:
        attention *= 2
    others = sum(record.macs.values()) - record.macs["attention"]
    return 2 * (others + padding * row_macs + attention)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_executed_operations_follow_from_the_record(kind, settings) -> None:
    model, given = transformer(kind), conditioning(kind, BATCH)
    cross = 2 * WIDTH**2 + 2 * TEXT * WIDTH if kind == "pixart" else 0
    row = DEPTH * (12 * WIDTH**2 + cross)
    shapes = []
    with attached(model, steps=5, **settings) as accelerator:
        for block in model.transformer_blocks:
            block.ff.register_forward_pre_hook(lambda m, args: shapes.append(tuple(args[0].shape)))
        for step, z in enumerate(latent_walk(BATCH, 5)):
            shapes.clear()
            flops = executed(model, z, given, step)
            assert flops == expected_flops(accelerator, row)
            # The blocks really get that many rows.
            longest = max(accelerator.log[-1].computed)
            assert shapes == [(BATCH, longest, WIDTH)] * DEPTH
        log = list(accelerator.log)
    if "ctr" in settings:
        assert all(max(r.computed) < TOKENS for r in log if not r.refresh)
    else:
        assert all(r.computed == [TOKENS] * BATCH for r in log)
    if "st" in settings:
        assert all(0.05 < d < 0.95 for r in log if not r.refresh for d in r.density)


@pytest.mark.parametrize("kind", KINDS)
def test_operations_of_a_reusing_step_are_those_of_its_rows(kind) -> None:
    """Without padding and masks, operations are two a MAC in every step, and fall with the rows."""
    model, given = transformer(kind), conditioning(kind, BATCH)
    with attached(model, steps=3, ctr=CTRConfig(reuse=0.75)) as accelerator:
        flops = [executed(model, z, given, step) for step, z in enumerate(latent_walk(BATCH, 3))]
        assert flops == [2 * sum(record.macs.values()) for record in accelerator.log]
        dense, reusing = (record.macs for record in list(accelerator.log)[:2])
    assert {kind: dense[kind] / reusing[kind] for kind in ("projection", "mlp", "attention")} == {
        "projection": 4,
        "mlp": 4,
        "attention": 4,
    }
    assert dense["embedding"] == reusing["embedding"]
    assert flops[1] < (0.35 if kind == "dit" else 0.45) * flops[0]


@pytest.mark.parametrize("heads", ["each", "shared"])
@pytest.mark.parametrize("kind", KINDS)
def test_recorded_density_is_that_of_the_masks(kind, heads) -> None:
    model, given = transformer(kind), conditioning(kind, BATCH)
    settings = {"ctr": CTRConfig(threshold=0.4), "st": STConfig(alpha=1, heads=heads)}
    masks: list[tuple[int, np.ndarray]] = []

    def observe(layer, q, k, v, mask, out) -> None:
        if mask is not None:
            masks.append((layer, mask.numpy()))

    with attached(model, steps=3, **settings) as accelerator:
        accelerator.attention.observer = observe
        evaluate(model, latent_walk(BATCH, 3), given)
        log = list(accelerator.log)
    assert [layer for layer, _ in masks] == list(range(DEPTH)) * 2
    for record in log[1:]:
        for layer in range(DEPTH):
            _, mask = masks.pop(0)
            full = np.broadcast_to(mask, (BATCH, HEADS, *mask.shape[2:]))
            kept = [full[i, :, :n].sum(axis=(1, 2)) for i, n in enumerate(record.computed)]
            entries = sum(record.computed) * TOKENS
            np.testing.assert_allclose(record.head_density[layer], sum(kept) / entries)


def network(kind: str) -> Network:
    common = {
        "name": kind,
        "resolution_px": 8 * LATENT,
        "depth": DEPTH,
        "width": WIDTH,
        "heads": HEADS,
        "patch": 2,
        "latent_px": LATENT,
        "in_channels": 4,
        "out_channels": 8,
    }
    if kind == "dit":
        return Network(**common, classes=1001)
    return Network(**common, text_tokens=TEXT, text_width=16, adaln="single")


@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_dense_macs_are_those_of_the_estimates(kind, branches) -> None:
    """To the MAC, but for what diffusers computes more than once.

    Its DiT embeds the timestep in every block and once more at the end; and with guidance both
    transformers embed patches and timestep in both branches, PixArt its shared modulation too.
    """
    model = transformer(kind)
    with attached(model, steps=1) as accelerator:
        evaluate(model, latent_walk(branches, 1), conditioning(kind, branches))
        measured = accelerator.macs()
    ops = operators(network(kind), cfg=branches == 2)
    timestep = total_macs(ops, "embedding.timestep1", "embedding.timestep2")
    expected = {
        "embedding": branches * total_macs(ops, "embedding.patch"),
        "projection": total_macs(ops, "self.qkv", "self.out"),
        "attention": total_macs(ops, "self.dot", "self.axpy"),
        "mlp": total_macs(ops, "mlp.fc1", "mlp.fc2"),
        "final": total_macs(ops, "final.linear"),
    }
    if kind == "dit":
        modulation = total_macs(ops, "conditioning.block", "conditioning.final")
        expected["conditioning"] = branches * (DEPTH + 1) * timestep + modulation
        again = (branches * (DEPTH + 1) - 1) * timestep
    else:
        parts = ("q", "kv", "dot", "axpy", "out")
        expected["cross-attention"] = total_macs(ops, *(f"cross.{part}" for part in parts))
        single = total_macs(ops, "conditioning.single")
        caption = total_macs(ops, "embedding.caption1", "embedding.caption2")
        expected["conditioning"] = branches * (timestep + single) + caption
        again = (branches - 1) * (timestep + single)
    again += (branches - 1) * total_macs(ops, "embedding.patch")
    assert measured == {**expected, "total": total_macs(ops) + again}
