"""What is computed in which denoising step: the object that programs are lowered from.

Cached Token Reuse (CTR) and Softmax Thresholding with mask reuse (ST) are the methods of DiSC
(arXiv 2605.25798).  The paper's thresholds and schedules are not public; every default here is a
choice of this project.  CTR's full refresh and ST's mask making fall on the same steps: apart
they lose quality, since a mask made by some rows only does not fit the others.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from disc.config import ConfigError, Section, explain

SCHEDULES = Path(__file__).parent / "schedules"
"""Shipped schedules, with the figures that chose them."""

Reference = Literal[
    "last-computed", "adjacent", "second-difference", "output", "random", "true-change"
]
REFERENCES: tuple[Reference, ...] = get_args(Reference)

# TOML has lists only.
Listed = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class _Checked(Section):
    """Raises `ConfigError`, not pydantic's error, when made directly."""

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise explain(error, type(self).__name__) from None


class CTRConfig(_Checked):
    """How tokens are chosen and what stands in for those that are reused.

    Exactly one of `threshold` and `reuse` is set.
    """

    reference: Reference = "last-computed"
    """What a token's latent is compared with, so as to score its change.

    "last-computed": the latent when that token was last computed, so slow drift adds up until it
    is seen; "adjacent": that of the step before; "second-difference": 2 z of the step before − z
    of two steps before; "output": not latents, but the network's outputs of the two steps before.
    Controls: "random": scores are drawn; "true-change": by how much reusing the token would err,
    which takes a dense pass to know and is no method."""
    threshold: Annotated[NonNegative | tuple[NonNegative, ...] | None, Listed] = None
    """Tokens with score ≥ threshold are computed; units of the latent.  One, or one a step."""
    reuse: Annotated[Fraction | tuple[Fraction, ...] | None, Listed] = None
    """Fraction of tokens that is reused, those of lowest score.  One, or one a step."""
    forecast: Annotated[int, Field(ge=0, le=2)] = 1
    """Order of the polynomial in the step through a token's last computed branch sums, by which
    those of a reused token are extrapolated; 0 reuses the last as it is."""
    damping: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor on the extrapolated change."""
    feedback: bool = False
    """Whether what forecast outputs have missed is made up for when their token is computed again.
    For samplers that weigh neighbouring steps about alike, see `golden.accelerate.feedback`."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of "random"."""

    @model_validator(mode="after")
    def _one_rule(self) -> CTRConfig:
        if (self.threshold is None) == (self.reuse is None):
            raise ValueError(
                f"threshold: {self.threshold} and reuse: {self.reuse}; set exactly one of them"
            )
        return self


class STConfig(_Checked):
    """Which attention entries are kept, and what stands in for the others."""

    alpha: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    """An entry is kept iff its probability is ≥ alpha / N, or on the diagonal; 0 keeps all."""
    share_residual: bool = True
    """Whether a refresh uses the dense output and keeps its difference to the masked one, to add
    it while the mask is reused.  False: the refresh uses the masked output at once."""
    heads: Literal["each", "shared"] = "each"
    """A mask for each head, or one for all, made from their mean probability."""


class Schedule(_Checked):
    """Which steps compute all tokens and make all masks, and what happens in between."""

    name: str = "schedule"
    steps: Annotated[int, Field(ge=1, le=10_000)]
    """Network evaluations of a sampling run."""
    refresh: Annotated[tuple[int, ...], Field(min_length=1), Listed]
    """Steps, ascending from 0, the noisiest, in which every token is computed."""
    make_masks: Annotated[tuple[int, ...], Field(min_length=1), Listed] | None = None
    """Those of them, ascending from 0, in which ST attends densely and makes its masks; the
    others reuse masks.  None: all of them."""
    ctr: CTRConfig | None = None
    """None computes all tokens in every step."""
    st: STConfig | None = None
    """None attends densely in every step."""
    figures: dict[str, float | int | str] = Field(default_factory=dict)
    """What was measured with this schedule; for people, without effect."""

    @model_validator(mode="after")
    def _fits(self) -> Schedule:
        steps, refresh = self.steps, self.refresh
        if refresh[0] != 0:
            raise ValueError(
                f"refresh: the first is step {refresh[0]}; step 0 must be one, since nothing "
                "has been computed before it"
            )
        for field, chosen in (("refresh", refresh), ("make_masks", self.make_masks or (0,))):
            for earlier, later in pairwise(chosen):
                if later <= earlier:
                    raise ValueError(f"{field}: {later} follows {earlier}; steps must ascend")
            if chosen[-1] >= steps:
                raise ValueError(f"{field}: {chosen[-1]} is outside 0..{steps - 1}, the steps")
        if self.make_masks and (
            0 not in self.make_masks or not self._refreshes.issuperset(self.make_masks)
        ):
            raise ValueError(
                f"make_masks: {self.make_masks} must hold step 0 and steps of refresh only, since "
                "a mask is made from the attention of all tokens"
            )
        if self.ctr is None:
            return self
        for field in ("threshold", "reuse"):
            values = getattr(self.ctr, field)
            if isinstance(values, tuple) and len(values) != steps:
                raise ValueError(
                    f"ctr.{field}: {len(values)} values for {steps} steps; give one value, or "
                    "one a step"
                )
        first_reuse = next((s for s in range(steps) if s not in self._refreshes), None)
        if self.ctr.reference in ("second-difference", "output") and first_reuse == 1:
            raise ValueError(
                f"refresh: step 1 must be one, since reference {self.ctr.reference!r} needs two "
                "earlier steps; set warmup to 2"
            )
        return self

    @classmethod
    def periodic(
        cls,
        steps: int,
        *,
        every: int = 3,
        warmup: int = 1,
        tail: int = 0,
        mask_every: int = 1,
        ctr: CTRConfig | None = None,
        st: STConfig | None = None,
        name: str = "schedule",
    ) -> Schedule:
        """Refresh in the first `warmup` steps, then every `every`-th, and in the last `tail`.

        Masks are made in every `mask_every`-th refresh.

        Raises:
            ConfigError: a number is out of range; the message names it, its value and the range.
        """
        limits = (("every", every, 1), ("warmup", warmup, 1), ("tail", tail, 0))
        for field, value, low in (*limits, ("mask_every", mask_every, 1)):
            if value < low:
                raise ConfigError(f"{field}: {value} is below {low}")
        if not 1 <= steps <= 10_000:
            raise ConfigError(f"steps: {steps} is outside 1..10000")
        last = min(warmup, steps) - 1
        chosen = {*range(last), *range(last, steps, every), *range(max(0, steps - tail), steps)}
        refresh = tuple(sorted(chosen))
        masks = refresh[::mask_every] if mask_every > 1 else None
        return cls(name=name, steps=steps, refresh=refresh, make_masks=masks, ctr=ctr, st=st)

    @cached_property
    def _refreshes(self) -> frozenset[int]:
        return frozenset(self.refresh)

    def is_refresh(self, step: int) -> bool:
        """Whether all tokens are computed in this step."""
        return step in self._refreshes

    def makes_masks(self, step: int) -> bool:
        """Whether ST attends densely in this step and makes its masks."""
        return self.is_refresh(step) and (self.make_masks is None or step in self.make_masks)

    def threshold(self, step: int) -> float | None:
        """CTR's threshold in a step, None where a fraction is reused."""
        threshold = self.ctr.threshold if self.ctr else None
        return threshold[step] if isinstance(threshold, tuple) else threshold

    def reuse(self, step: int) -> float | None:
        """Fraction of tokens reused in a step, 0 in a refresh, None where a threshold decides."""
        if self.ctr is None or self.is_refresh(step):
            return 0.0
        reuse = self.ctr.reuse
        return reuse[step] if isinstance(reuse, tuple) else reuse

    @cached_property
    def digest(self) -> str:
        """First 12 hex digits of SHA-256 over all that has an effect."""
        fields = self.model_dump(exclude={"name", "figures"})
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __str__(self) -> str:
        """Timeline and the methods in words.

        A letter a step: M for a refresh that makes masks, R for another; in the others a digit
        says how many tenths of the tokens are computed, "." none, "t" what exceeds a threshold.
        """
        line = "".join(self._letter(s) for s in range(self.steps))
        parts = [f"{self.name}: {self.steps} steps, {line}"]
        if self.ctr:
            c = self.ctr
            if c.reuse is None:
                amount = "tokens below a threshold reused"
            elif isinstance(c.reuse, tuple):
                amount = "a fraction of tokens reused for each step"
            else:
                amount = f"{c.reuse:.0%} of tokens reused"
            order = "as they were" if c.forecast == 0 else f"forecast of order {c.forecast}"
            damped = f", damped {c.damping:g}" if c.damping < 1 and c.forecast else ""
            fed = ", fed back" if c.feedback else ""
            parts.append(f"CTR {c.reference}, {amount}, {order}{damped}{fed}")
        if self.st:
            s = self.st
            heads = "a mask a head" if s.heads == "each" else "one mask for all heads"
            shared = "residual shared" if s.share_residual else "residual dropped"
            parts.append(f"ST α = {s.alpha:g}, {heads}, {shared}")
        if not (self.ctr or self.st):
            parts.append("dense")
        return "; ".join(parts)

    def _letter(self, step: int) -> str:
        if self.st and self.makes_masks(step):
            return "M"
        reuse = self.reuse(step)
        if reuse == 0:
            return "R"
        if reuse is None:
            return "t"
        return "." if reuse == 1 else str(min(9, max(1, round(10 * (1 - reuse)))))

    def to_toml(self) -> str:
        """Return the schedule as TOML; `loads` restores an equal object."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))


def loads(text: str, *, source: str = "schedule") -> Schedule:
    """Parse TOML text, or raise `ConfigError` that names the field."""
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    try:
        return Schedule.model_validate(fields)
    except ValidationError as error:
        raise explain(error, source) from None


def shipped() -> list[str]:
    """Names of the shipped schedules."""
    return sorted(path.stem for path in SCHEDULES.glob("*.toml"))


def load(name_or_path: str | Path) -> Schedule:
    """Return a shipped schedule by name, or read the TOML file that the argument names.

    Raises:
        ConfigError: there is none, it is unreadable, or a field is out of range.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = SCHEDULES / f"{name_or_path}.toml"
        if not path.is_file():
            raise ConfigError(
                f"schedule: no shipped schedule {str(name_or_path)!r}; choose "
                f"{', '.join(shipped())}, or give a TOML file"
            )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"schedule: cannot read {path}: {error}") from None
    return loads(text, source=str(path))
