"""Make up for what was forecast wrongly, once it is known better."""

from __future__ import annotations

import torch
from torch import Tensor

from golden.accelerate.tokens import Rows


class OutputFeedback:
    """Adds to a computed token's output what its forecast outputs since then have missed.

    When a token is computed again, the outputs of the steps in between can be interpolated, which
    is far more exact than the extrapolation that was given to the sampler.  The difference,
    summed over those steps, is added to the output now.  A sampler whose update is linear and
    weighs neighbouring steps about alike thereby catches up; DDIM with v-prediction on a cosine
    schedule weighs them alike to within 1 % a step.

    It needs outputs only, a few numbers a token, and so belongs to the host that runs the sampler.

    Args:
        patch: edge of a token in values of the output.
        channels: of the output that are corrected, the first ones.
    """

    def __init__(self, patch: int, channels: int) -> None:
        self.patch, self.channels = patch, channels
        self._given: dict[int, Tensor] = {}
        """Step to the output as given to the sampler, [B, N, C p²]."""
        self._values: list[Tensor] = []
        """Last two computed outputs of each token, newest first, without feedback."""
        self._steps: list[Tensor] = []
        """When, int64 [B, N, 1]; −1 for never."""

    def __call__(self, step: int, rows: Rows, output: Tensor) -> Tensor:
        """Correct an output [B, C', h, w] of which `rows` were computed in this step."""
        y = self._tokens(output[:, : self.channels])
        computed = rows.mask(y.device)[..., None]
        if not self._values:
            self._values = [y, torch.zeros_like(y)]
            self._steps = [
                torch.full_like(computed, step, dtype=torch.int64),
                torch.full_like(computed, -1, dtype=torch.int64),
            ]
            return output
        missed = torch.zeros_like(y)
        for past, given in self._given.items():
            skipped = computed & (past > self._steps[0])
            missed += torch.where(skipped, self._interpolate(past, step, y) - given, 0.0)
        self._given[step] = y
        for history, now in ((self._values, y), (self._steps, step)):
            history[1] = torch.where(computed, history[0], history[1])
            history[0] = torch.where(computed, now, history[0])
        oldest = int(self._steps[0].min())
        self._given = {past: given for past, given in self._given.items() if past > oldest}
        corrected = output.clone()
        corrected[:, : self.channels] += self._image(missed, output)
        return corrected

    def _interpolate(self, at: int, step: int, y: Tensor) -> Tensor:
        """Lagrange through this step, the last computed and, where there is one, that before."""
        s0, s1 = self._steps
        v0, v1 = self._values
        line = v0 + (y - v0) * ((at - s0) / (step - s0))
        curve = (
            y * ((at - s0) * (at - s1) / ((step - s0) * (step - s1)))
            + v0 * ((at - step) * (at - s1) / ((s0 - step) * (s0 - s1)))
            + v1 * ((at - step) * (at - s0) / ((s1 - step) * (s1 - s0)))
        )
        return torch.where(s1 >= 0, curve, line)

    def _tokens(self, image: Tensor) -> Tensor:
        p = self.patch
        rows = torch.nn.functional.unfold(image.float(), p, stride=p)
        return rows.transpose(1, 2)

    def _image(self, tokens: Tensor, like: Tensor) -> Tensor:
        size = (like.shape[2], like.shape[3])
        rows = tokens.transpose(1, 2)
        image = torch.nn.functional.fold(rows, size, self.patch, stride=self.patch)
        return image.to(like.dtype)
