"""CTR and ST once more, without skipping anything: all tokens are computed and then overwritten.

Shares nothing with `golden.accelerate` but the decision of which tokens are selected and the
float model's layers.  Slow, short, and in the order of the definitions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from disc.schedule import Schedule
from golden.ctr import TokenSelector
from golden.model.dit import DiT


class EmulatedDenoiser:
    """A denoiser for `golden.sampling.sample` that emulates a schedule on a dense model."""

    def __init__(self, model: DiT, schedule: Schedule) -> None:
        self.model, self.schedule = model, schedule
        self.step = -1
        self.macs = 0
        """Of Q Kᵀ and P V so far, all layers, heads and images, per channel of a head."""
        self.rows = 0
        self._layers: list[dict] = [{} for _ in model.blocks]
        self._history: list[list[list[tuple[int, Tensor]]]] = []
        self._selectors: list[TokenSelector] = []
        self._outputs: dict[tuple[int, int], tuple[list, list]] = {}

    def __call__(self, z: Tensor, t: Tensor, y: Tensor) -> Tensor:
        """Predict the velocity."""
        model, n = self.model, self.model.config.tokens
        self.step += 1
        if not self._selectors:
            self._selectors = [TokenSelector(self.schedule, model.config.patch) for _ in z]
            self._history = [[[] for _ in range(n)] for _ in z]
        active = torch.zeros(len(z), n, dtype=torch.bool)
        for image, selector in enumerate(self._selectors):
            active[image, selector.decide(self.step, z[image].numpy()).selected] = True
        self.rows += int(active.sum())
        embedding, c = model.embed(z), model.condition(t, y)
        x = embedding
        for layer, block in enumerate(model.blocks):
            shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = block.modulation(c)
            q, k, v = block.attn.split_heads(block.attention_input(x, shift_a, scale_a))
            out = self._attend(self._layers[layer], q, k, v, active)
            x = x + gate_a[:, None] * block.attn.merge_heads(out)
            x = x + gate_m[:, None] * block.mlp_branch(x, shift_m, scale_m)
        x = self._forecast(embedding, x, active)
        patches = model.final_layer(x, c)
        if self.schedule.ctr and self.schedule.ctr.feedback:
            patches = self._feed_back(patches, active)
        return model.unpatchify(patches)

    def _feed_back(self, patches: Tensor, active: Tensor) -> Tensor:
        result = patches.clone()
        for image in range(len(patches)):
            for token in range(patches.shape[1]):
                computed, given = self._outputs.setdefault((image, token), ([], []))
                now = patches[image, token]
                if not active[image, token]:
                    given.append((self.step, now))
                    continue
                known = [(self.step, now), *computed[:2]]
                for step, value in given:
                    result[image, token] += self._polynomial(known, step) - value
                computed.insert(0, known[0])
                given.clear()
        return result

    def _attend(self, state: dict, q: Tensor, k: Tensor, v: Tensor, active: Tensor) -> Tensor:
        keep = active[:, None, :, None]
        k = torch.where(keep, k, state.get("k", k))
        v = torch.where(keep, v, state.get("v", v))
        state.update(k=k, v=v)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        p = scores.softmax(dim=-1)
        st, n = self.schedule.st, q.shape[2]
        mask = torch.ones_like(p, dtype=torch.bool)
        if st and self.schedule.makes_masks(self.step):
            compared = p.mean(1, keepdim=True).expand_as(p) if st.heads == "shared" else p
            made = (compared >= st.alpha / n) | torch.eye(n, dtype=torch.bool)
            masked = scores.masked_fill(~made, -math.inf).softmax(dim=-1) @ v
            state.update(mask=made, residual=p @ v - masked)
            if not st.share_residual:
                mask = made
            out = p @ v if st.share_residual else masked
        elif st:
            mask = state["mask"]
            out = scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ v
            if st.share_residual:
                out = out + state["residual"]
        else:
            out = p @ v
        scored = keep if st and self.schedule.makes_masks(self.step) else mask & keep
        self.macs += int(scored.expand_as(mask).sum()) + int((mask & keep).sum())
        return out

    def _forecast(self, embedding: Tensor, x: Tensor, active: Tensor) -> Tensor:
        ctr = self.schedule.ctr
        x = x.clone()
        for image in range(len(x)):
            for token in range(x.shape[1]):
                history = self._history[image][token]
                if active[image, token]:
                    history.insert(0, (self.step, x[image, token] - embedding[image, token]))
                    del history[ctr.forecast + 1 if ctr else 1 :]
                else:
                    branches = self._extrapolate(history, ctr.damping)
                    x[image, token] = embedding[image, token] + branches
        return x

    def _extrapolate(self, history: list[tuple[int, Tensor]], damping: float) -> Tensor:
        last = history[0][1]
        return last + damping * (self._polynomial(history, self.step) - last)

    @staticmethod
    def _polynomial(known: list[tuple[int, Tensor]], at: int) -> Tensor:
        total = torch.zeros_like(known[0][1])
        for i, (step, value) in enumerate(known):  # Lagrange's form
            weight = 1.0
            for j, (other, _) in enumerate(known):
                if i != j:
                    weight *= (at - other) / (step - other)
            total = total + weight * value
        return total
