"""Attached transformers against a slow emulation that computes every row and picks afterwards.

Rows meet only in self-attention, through keys and values.  So the emulation lets all rows run
through all blocks, replaces keys and values of reused tokens by older ones, and at the end
replaces the results of reused tokens by their forecast.
"""

import math
from typing import Any

import pytest
import torch
from small_diffusers import (
    HEADS,
    KINDS,
    PATCH,
    TOKENS,
    attached,
    conditioning,
    evaluate,
    latent_walk,
    relative,
    transformer,
)
from torch import Tensor

from disc.schedule import CTRConfig, Schedule, STConfig
from golden.ctr import TokenSelector

STEPS = 8


class Emulation:
    """Of one step after the other, on one transformer."""

    def __init__(self, model: Any, schedule: Schedule, batch: int) -> None:
        self.schedule, self.model = schedule, model
        self.selectors = [TokenSelector(schedule, PATCH) for _ in range(batch)]
        self.selected = torch.ones(batch, TOKENS, dtype=torch.bool)
        self.step = -1
        self.known: list[list[list[tuple[int, Tensor]]]] = [
            [[] for _ in range(TOKENS)] for _ in range(batch)
        ]
        self.memory: list[dict[str, Tensor]] = [{} for _ in model.transformer_blocks]
        for block, memory in zip(model.transformer_blocks, self.memory, strict=True):
            block.attn1.set_processor(
                lambda attn, x, memory=memory, **_: self.attend(attn, x, memory)
            )
        model.register_forward_pre_hook(self.choose)
        model.transformer_blocks[0].register_forward_pre_hook(self.note_embedding)
        model.transformer_blocks[-1].register_forward_hook(self.replace_reused)

    def choose(self, module: Any, args: tuple[Tensor]) -> None:
        self.step += 1
        for image, (selector, z) in enumerate(zip(self.selectors, args[0], strict=True)):
            self.selected[image] = False
            self.selected[image, selector.decide(self.step, z.numpy()).selected] = True

    def attend(self, attn: Any, x: Tensor, memory: dict[str, Tensor]) -> Tensor:
        new = self.selected[:, None, :, None]
        q, k, v = (
            f(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for f in (attn.to_q, attn.to_k, attn.to_v)
        )
        memory["k"] = k = torch.where(new, k, memory.get("k", k))
        memory["v"] = v = torch.where(new, v, memory.get("v", v))
        p = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).softmax(dim=3)
        out, st = p @ v, self.schedule.st
        if st:
            if self.schedule.makes_masks(self.step):
                size = p.mean(dim=1, keepdim=True).expand(p.shape) if st.heads == "shared" else p
                memory["mask"] = (size * TOKENS >= st.alpha) | torch.eye(TOKENS, dtype=torch.bool)
            kept = p * memory["mask"]
            masked = kept / kept.sum(dim=3, keepdim=True) @ v
            if not st.share_residual:
                out = masked
            elif self.schedule.makes_masks(self.step):
                memory["residual"] = out - masked
            else:
                out = masked + memory["residual"]
        return attn.to_out[0](out.transpose(1, 2).flatten(2))

    def note_embedding(self, block: Any, args: tuple[Tensor]) -> None:
        self.embedding = args[0]

    def replace_reused(self, block: Any, args: Any, x: Tensor) -> Tensor:
        result = x.clone()
        for image, history in enumerate(self.known):
            for token, known in enumerate(history):
                if self.selected[image, token]:
                    known.append((self.step, (x - self.embedding)[image, token]))
                else:
                    result[image, token] = self.embedding[image, token] + self.forecast(known)
        return result

    def forecast(self, known: list[tuple[int, Tensor]]) -> Tensor:
        """Lagrange's polynomial through the last values, change to the newest damped."""
        ctr = self.schedule.ctr
        assert ctr is not None
        last = known[-ctr.forecast - 1 :]
        value = torch.zeros_like(last[0][1])
        for step, sums in last:
            others = [s for s, _ in last if s != step]
            value += sums * math.prod((self.step - s) / (step - s) for s in others)
        return last[-1][1] + ctr.damping * (value - last[-1][1])


SETTINGS: dict[str, dict[str, Any]] = {
    "CTR, as they were": {"ctr": CTRConfig(reuse=0.6, forecast=0)},
    "CTR, forecast": {"ctr": CTRConfig(threshold=0.4)},
    "CTR, order 2, damped": {"ctr": CTRConfig(threshold=0.4, forecast=2, damping=0.7)},
    "ST": {"st": STConfig(alpha=1)},
    "ST, residual dropped": {"st": STConfig(alpha=1, share_residual=False)},
    "ST, heads share": {"st": STConfig(alpha=1, heads="shared")},
    "both": {"ctr": CTRConfig(threshold=0.4), "st": STConfig(alpha=1)},
    "both, all off": {
        "ctr": CTRConfig(reuse=0.6, forecast=0, reference="adjacent"),
        "st": STConfig(alpha=1, share_residual=False),
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_attached_equals_the_emulation(kind, settings) -> None:
    walk, given = latent_walk(2, STEPS), conditioning(kind, 2)
    dense = evaluate(transformer(kind), walk, given)
    model = transformer(kind)
    with attached(model, steps=STEPS, every=3, **settings) as accelerator:
        outputs = evaluate(model, walk, given)
        schedule = accelerator.schedule
        computed = [record.computed for record in accelerator.log]
    emulated = transformer(kind)
    emulation = Emulation(emulated, schedule, 2)
    expected = evaluate(emulated, walk, given)
    assert emulation.step == STEPS - 1
    for step, (out, reference, full) in enumerate(zip(outputs, expected, dense, strict=True)):
        assert relative(out, reference) < 1e-5, step
        if not schedule.is_refresh(step):
            assert relative(full, reference) > 1e-4, step
    assert sum(map(sum, computed)) == sum(len(h) for image in emulation.known for h in image)
