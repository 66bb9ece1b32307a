"""Attach CTR and ST to a transformer; what happens in each step, and its record."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from disc.config import ConfigError
from disc.schedule import CTRConfig, Schedule, STConfig
from golden.accelerate.adapters import adapter_of
from golden.accelerate.attention import RememberingAttention
from golden.accelerate.feedback import OutputFeedback
from golden.accelerate.tokens import BranchSums, Rows
from golden.accelerate.work import WorkCounter
from golden.ctr import TokenSelector, patch_sums
from golden.st import MaskMaker, make_mask

_ATTRIBUTE = "_disc_accelerator"
_STATE = (
    "log",
    "selectors",
    "_layers",
    "_sums",
    "_feedback",
    "_step",
    "_time",
    "_shape",
    "_outputs",
)


@dataclass(frozen=True, eq=False)
class StepRecord:
    """What one step did, for all images of the batch together."""

    step: int
    timestep: float
    refresh: bool
    computed: list[int]
    """Tokens computed, of each image (guidance branches count as images)."""
    tokens: int
    """N, of each image."""
    density: list[float]
    """Of each layer: attention entries computed, of computed rows × N."""
    head_density: NDArray[np.float64]
    """The same [layers, heads]."""
    macs: Mapping[str, int]
    """Multiply-accumulates by kind of work, see `golden.accelerate.adapters.Category`."""


class Accelerator:
    """CTR and ST on one transformer, between `attach` and `detach`.

    A generation starts by itself: with the first call, and whenever the timestep does not fall,
    the latent changes its shape or the last call raised an error.  (Samplers that evaluate the
    same timestep twice, such as Heun's, therefore refresh all the time.)

    Attributes:
        schedule: what is computed when.
        attention: keys, values, masks and residuals of all layers.
        selectors: one an image, of the current generation.
        log: records of the current generation's steps.
    """

    def __init__(
        self, transformer: nn.Module, schedule: Schedule, maker: MaskMaker = make_mask
    ) -> None:
        self.schedule = schedule
        self.log: list[StepRecord] = []
        self.selectors: list[TokenSelector] = []
        self._adapter = adapter_of(transformer)
        if transformer.training:
            raise ValueError(
                "transformer: in training mode, where class labels are dropped at random; call "
                "eval()"
            )
        reuses = schedule.ctr is not None and len(schedule.refresh) < schedule.steps
        self._ctr = schedule.ctr if reuses else None
        self.attention = RememberingAttention(schedule.st, keep_keys=reuses, maker=maker)
        self._transformer = transformer
        self._work = WorkCounter(transformer, self._adapter)
        self._undo_attention = self._adapter.install(self.attention)
        first, last = self._adapter.blocks[0], self._adapter.blocks[-1]
        self._handles = [
            transformer.register_forward_pre_hook(self._begin, with_kwargs=True),
            first.register_forward_pre_hook(self._take, with_kwargs=True),
            last.register_forward_hook(self._put),
            transformer.register_forward_hook(self._end),
        ]
        self.reset()

    def reset(self) -> None:
        """Forget the current generation; the next call starts one."""
        self.log.clear()
        self.selectors.clear()
        self._layers = self.attention.reset()
        self._sums = BranchSums(self._ctr.forecast, self._ctr.damping) if self._ctr else None
        self._feedback = (
            OutputFeedback(self._adapter.patch, self._adapter.channels)
            if self._ctr and self._ctr.feedback
            else None
        )
        self._rows: Rows | None = None
        self._step, self._time = -1, float("inf")
        self._shape: torch.Size | None = None
        self._embedding: Tensor | None = None
        self._unfinished = False
        """Whether a forward pass has begun but not ended; it raised, if the next one begins."""
        self._probing = False
        self._probed: Tensor | None = None
        self._outputs: list[Tensor] = []

    def snapshot(self) -> dict[str, Any]:
        """Copy all that the rest of a generation depends on; can be pickled."""
        return copy.deepcopy({name: getattr(self, name) for name in _STATE})

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot, of this accelerator or of one attached alike."""
        for name, value in copy.deepcopy(dict(snapshot)).items():
            setattr(self, name, value)
        self.attention.layers = self._layers

    def remove(self) -> None:
        """Take all hooks out, restoring the transformer to the bit."""
        for handle in self._handles:
            handle.remove()
        self._work.remove()
        self._undo_attention()
        self.reset()

    # -- one forward pass, in order ------------------------------------------------------------

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._probing:
            return
        try:
            self._decide(module, args, kwargs)
        except BaseException:
            self.reset()  # some images have decided, others have not
            raise

    def _decide(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        z, time = self._adapter.latent_and_time(args, kwargs)
        if self._unfinished or not time < self._time or z.shape != self._shape:
            self.reset()
            self._shape = z.shape
        latents = z.detach().float().cpu().numpy()
        if not self.selectors:
            self.selectors = [TokenSelector(self.schedule, self._adapter.patch) for _ in latents]
        step = self._step + 1
        if step >= self.schedule.steps:
            raise ConfigError(
                f"steps: the sampler runs a step {step + 1}, schedule {self.schedule.name!r} has "
                f"{self.schedule.steps}; attach one with the sampler's number of steps"
            )
        scores = self._scores(step, module, args, kwargs, latents)
        decisions = [
            selector.decide(step, image, score)
            for selector, image, score in zip(self.selectors, latents, scores, strict=True)
        ]
        tokens = len(decisions[0].scores)
        self._step, self._time = step, time
        self._rows = Rows([decision.selected for decision in decisions], tokens)
        self._work.rows = self._rows
        self._work.macs.clear()
        self.attention.begin(self._rows, make_masks=self.schedule.makes_masks(step))
        self._unfinished = True

    def _take(
        self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._ctr is None and not self._probing:
            return None
        named = "hidden_states" in kwargs
        x = kwargs["hidden_states"] if named else args[0]
        self._embedding = x
        if self._probing or self._rows is None or self._rows.all:
            return None
        x = self._rows.take(x, 1)
        return (args, {**kwargs, "hidden_states": x}) if named else ((x, *args[1:]), kwargs)

    def _put(self, block: nn.Module, args: tuple[Any, ...], x: Tensor) -> Tensor | None:
        if self._embedding is None:
            return None
        if self._probing:
            self._probed = x - self._embedding
            return None
        assert self._rows is not None
        assert self._sums is not None
        self._sums.record(self._step, self._rows, x - self._rows.take(self._embedding, 1))
        if self._rows.all:
            return None
        whole = self._embedding + self._sums.forecast(self._step)
        self._rows.put(whole, x, 1)
        return whole

    def _end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if self._probing or self._rows is None:
            return None
        self._embedding = None
        self._unfinished = False
        self._record()
        sample = output if isinstance(output, Tensor) else output[0]
        if self._ctr and self._ctr.reference == "output":
            self._outputs = [sample[:, : self._adapter.channels].detach(), *self._outputs[:1]]
        if self._feedback is None:
            return None
        sample = self._feedback(self._step, self._rows, sample)
        if isinstance(output, Tensor):
            return sample
        return (sample,) if isinstance(output, tuple) else type(output)(sample=sample)

    # -- scores that do not come from latents --------------------------------------------------

    def _scores(
        self,
        step: int,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        latents: NDArray[np.float32],
    ) -> list[NDArray[np.float32] | None]:
        reference = self._ctr.reference if self._ctr else None
        if reference not in ("output", "true-change") or self.schedule.is_refresh(step):
            return [None] * len(latents)
        if reference == "output":
            change = (self._outputs[0] - self._outputs[1]).abs().float().cpu().numpy()
            scores = np.stack([patch_sums(image, self._adapter.patch) for image in change])
        else:
            assert self._sums is not None
            missed = self._dense_sums(module, args, kwargs) - self._sums.forecast(step)
            scores = missed.abs().float().mean(dim=2).cpu().numpy()
        # Guidance branches see one latent and share its list, so they share the score.
        groups: dict[bytes, list[int]] = {}
        for i, image in enumerate(latents):
            groups.setdefault(image.tobytes(), []).append(i)
        for members in groups.values():
            scores[members] = scores[members].mean(axis=0)
        return list(scores)

    def _dense_sums(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        """Sums of all branch outputs [B, N, D] of a dense pass, which leaves no trace."""
        self._probing = self.attention.plain = self._work.paused = True
        try:
            module(*args, **kwargs)
        finally:
            self._probing = self.attention.plain = self._work.paused = False
            self._embedding = None
        assert self._probed is not None
        return self._probed

    # -- reports -------------------------------------------------------------------------------

    def _record(self) -> None:
        assert self._rows is not None
        layers = sorted(self.attention.kept)
        if len(layers) < len(self._adapter.blocks):
            raise ValueError(
                f"transformer: only {len(layers)} of {len(self._adapter.blocks)} blocks attended "
                "through CTR and ST; their attention processors were replaced after attach"
            )
        kept = np.array([self.attention.kept[layer].numpy() for layer in layers])
        rows = sum(self._rows.counts)
        entries = kept.sum(axis=1) / max(1, rows * self._rows.tokens)
        macs = dict(self._work.macs)
        macs["attention"] = round(2 * float(kept.sum())) * self._adapter.head_dim
        self.log.append(
            StepRecord(
                step=self._step,
                timestep=self._time,
                refresh=self.schedule.is_refresh(self._step),
                computed=list(self._rows.counts),
                tokens=self._rows.tokens,
                density=entries.mean(axis=1).tolist(),
                head_density=entries,
                macs=macs,
            )
        )

    def macs(self) -> dict[str, int]:
        """Multiply-accumulates of the generation so far, by kind and in "total", all images."""
        total: dict[str, int] = {}
        for record in self.log:
            for kind, count in record.macs.items():
                total[kind] = total.get(kind, 0) + count
        return {**total, "total": sum(total.values())}

    def dense_macs(self) -> dict[str, int]:
        """The same, had every step computed all there is, as the refreshes do."""
        dense = {kind: count * len(self.log) for kind, count in self.log[0].macs.items()}
        if self.attention.st and not self.attention.st.share_residual:
            # This refresh attended under its mask; densely it is rows × N in every head.
            first = self.log[0]
            batch, heads = len(first.computed), first.head_density.shape[1]
            entries = first.tokens**2 * batch * heads * len(first.density)
            dense["attention"] = 2 * entries * self._adapter.head_dim * len(self.log)
        return {**dense, "total": sum(dense.values())}

    def report(self) -> str:
        """One line a step: tokens computed, attention density, work relative to dense."""
        if not self.log:
            return f"{self.schedule}\nnothing computed yet"
        dense = self.dense_macs()
        each = dense["total"] / len(self.log)
        lines = [str(self.schedule), "step  timestep  tokens computed  attention density  work"]
        for r in self.log:
            tokens = sum(r.computed) / (r.tokens * len(r.computed))
            density = sum(r.density) / len(r.density)
            mark = "R" if r.refresh else " "
            lines.append(
                f"{r.step:4}{mark} {r.timestep:9.1f} {tokens:15.1%} {density:18.1%} "
                f"{sum(r.macs.values()) / each:6.1%}"
            )
        done = self.macs()
        lines.append(
            f"work: {done['total'] / dense['total']:.1%} of dense; attention "
            f"{done['attention'] / dense['attention']:.1%}"
        )
        return "\n".join(lines)


def attach(
    transformer: nn.Module,
    schedule: Schedule | None = None,
    *,
    steps: int | None = None,
    ctr: CTRConfig | None = None,
    st: STConfig | None = None,
    every: int = 3,
    warmup: int = 1,
    tail: int = 0,
    maker: MaskMaker = make_mask,
) -> Accelerator:
    """Run a transformer with CTR and ST from now on, inside whatever sampler calls it.

    Args:
        transformer: `golden.model.DiT`, or `DiTTransformer2DModel` or `PixArtTransformer2DModel`
            of diffusers, in evaluation mode.
        schedule: what is computed when; or give its parts:
        steps: network evaluations of a generation.
        ctr: token reuse; None computes all tokens.
        st: attention masks; None attends densely.
        every: a refresh every so many steps…
        warmup: …after so many first steps that are refreshes all…
        tail: …and before so many last ones.
        maker: makes the masks of ST, by default `golden.st.make_mask`.  Called with the dense
            probabilities of R query rows, float32 [B, H, R, N], with `st`, and with the token of
            the first row; a layer's rows may come in several calls, in order.  Returns bool
            [B, H, R, N], or [B, 1, R, N] if heads share it: True keeps an entry, and every row
            must keep one.  Not called if there is no `st` or its α is 0.

    Returns:
        The accelerator: its `log`, `macs()` and `report()` say what was done.  With neutral
        settings (`ctr` and `st` None, or reuse 0 or threshold 0, and α 0) the transformer gives
        its own output to the bit.

    Raises:
        ValueError: (or `ConfigError`, a kind of it) the transformer is of another class, in
            training mode or attached already, or a setting is out of range.  Later, by
            the transformer's call: a mask of `maker` has another type or shape, or an empty row.
    """
    if hasattr(transformer, _ATTRIBUTE):
        raise ValueError("transformer: already attached; golden.detach it first")
    if schedule is None:
        if steps is None:
            raise ConfigError("steps: missing; give the sampler's number of steps, or a schedule")
        schedule = Schedule.periodic(steps, every=every, warmup=warmup, tail=tail, ctr=ctr, st=st)
    elif steps is not None or ctr is not None or st is not None:
        raise ConfigError("schedule: given together with its parts (steps, ctr, st); give one")
    accelerator = Accelerator(transformer, schedule, maker)
    setattr(transformer, _ATTRIBUTE, accelerator)
    return accelerator


def detach(transformer: nn.Module) -> None:
    """Undo `attach`; the transformer gives its own output to the bit again.

    Raises:
        ValueError: it is not attached.
    """
    accelerator = getattr(transformer, _ATTRIBUTE, None)
    if accelerator is None:
        raise ValueError("transformer: not attached")
    accelerator.remove()
    delattr(transformer, _ATTRIBUTE)
