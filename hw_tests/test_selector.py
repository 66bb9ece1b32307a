# amaranth: UnusedElaboratable=no
"""Token selector against its definition, written out in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from disc.config import CoreConfig, build, preset
from disc.verilog import to_verilog
from golden.ctr import select_tokens_int
from hw.units.store.selector import MAX_CHANNELS, MAX_PATCH, SelectorMode, TokenSelector, score_bits
from hw_tests import sim


def configured(pixels: int, latent_bits: int, max_width: int) -> CoreConfig:
    fields = preset("tiny").model_dump()
    fields["selector"] = {
        "pixels": pixels,
        "latent_bits": latent_bits,
        "max_width": max_width,
    }
    return build(fields)


CONFIGS = {
    "tiny": preset("tiny"),
    "narrow": configured(1, 8, 8),
    "odd": configured(5, 12, 11),
    "wide": configured(16, 16, 64),
}


@dataclass
class Case:
    """One command and its image: arrays [rows * patch, columns * patch, channels]."""

    mode: SelectorMode
    patch: int
    z: np.ndarray
    ref: np.ndarray
    prev: np.ndarray
    threshold: int = 0

    @property
    def columns(self) -> int:
        return self.z.shape[1] // self.patch

    @property
    def rows(self) -> int:
        return self.z.shape[0] // self.patch

    def scores(self) -> np.ndarray:
        """The definition, token by token."""
        p = self.patch
        scores = []
        for row in range(self.rows):
            for column in range(self.columns):
                patch = np.s_[row * p : row * p + p, column * p : column * p + p]
                change = self.z[patch] - self.ref[patch]
                if self.mode == SelectorMode.SECOND_DIFFERENCE:
                    change = change - self.ref[patch] + self.prev[patch]
                scores.append(np.abs(change).sum())
        return np.array(scores)

    def beats(self, config: CoreConfig) -> int:
        return -(-self.patch * self.z.shape[2] // config.selector.pixels)

    def command(self, config: CoreConfig) -> list[int]:
        beats = self.beats(config)
        return [self.rows, self.columns, self.patch, beats, self.mode.value, self.threshold]

    def words(self, config: CoreConfig) -> np.ndarray:
        """Pixel stream [words, pixels, 3], filled up with zeros."""
        lines = np.stack([self.z, self.ref, self.prev], axis=-1)
        runs = lines.reshape(len(lines) * self.columns, -1, 3)
        fill = self.beats(config) * config.selector.pixels - runs.shape[1]
        return np.pad(runs, ((0, 0), (0, fill), (0, 0))).reshape(-1, config.selector.pixels, 3)


def random_case(config: CoreConfig, rng: np.random.Generator, **fixed: int) -> Case:
    s = config.selector
    patch = fixed.get("patch", int(rng.integers(1, MAX_PATCH + 1)))
    rows = fixed.get("rows", int(rng.integers(1, 5)))
    columns = fixed.get("columns", int(rng.integers(1, min(s.max_width, 12) + 1)))
    channels = fixed.get("channels", int(rng.choice([1, 3, 4, 5])))
    shape = rows * patch, columns * patch, channels
    low, high = -(1 << (s.latent_bits - 1)), 1 << (s.latent_bits - 1)
    # Mostly small changes, some anywhere in the range.
    ref = rng.integers(low, high, shape)
    z = np.clip(ref + rng.integers(-9, 10, shape), low, high - 1)
    wild = rng.random(shape) < 0.1
    z[wild] = rng.integers(low, high, shape)[wild]
    mode = SelectorMode(fixed.get("mode", int(rng.integers(2))))
    case = Case(mode, patch, z, ref, rng.integers(low, high, shape))
    # A score that occurs, so that equality is met; one above; everything; nothing.
    score = int(rng.choice(case.scores()))
    case.threshold = int(rng.choice([score, score + 1, 0, (1 << score_bits(config)) - 1]))
    return case


def directed_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    s = config.selector
    low, high = -(1 << (s.latent_bits - 1)), (1 << (s.latent_bits - 1)) - 1
    full = np.full((2 * MAX_PATCH, MAX_PATCH, MAX_CHANNELS), 1)
    largest = Case(SelectorMode.SECOND_DIFFERENCE, MAX_PATCH, full * high, full * low, full * high)
    largest.threshold = int(largest.scores().max())
    above = Case(SelectorMode.SECOND_DIFFERENCE, MAX_PATCH, full * high, full * low, full * high)
    above.threshold = largest.threshold + 1
    return [
        largest,
        above,
        # One column of one beat: the partial sum is read in the cycle in which it is written.
        random_case(config, rng, columns=1, channels=1, patch=min(s.pixels, MAX_PATCH), rows=9),
        random_case(config, rng, columns=s.max_width, channels=1, patch=2, rows=2),
        random_case(config, rng, columns=1, channels=1, patch=1, rows=s.max_width),
    ]


@cache
def simulator(config: CoreConfig) -> sim.Built:
    top = "token_selector"
    header = {"configuration": config.digest}
    return sim.build(to_verilog(TokenSelector(config), top=top, header=header), top)


def check(config: CoreConfig, cases: list[Case], *, pause_in: str, pause_out: str, seed: int):
    chosen = [case.scores() >= case.threshold for case in cases]
    return sim.run(
        simulator(config),
        "hw_tests.selector_bench",
        seed=seed,
        inputs={
            "config": config.to_toml(),
            "pause_in": pause_in,
            "pause_out": pause_out,
            "commands": np.array([case.command(config) for case in cases]),
            "words": np.concatenate([case.words(config) for case in cases]),
            "selected": np.concatenate([np.flatnonzero(one) for one in chosen]),
            "reused": np.concatenate([np.flatnonzero(~one) for one in chosen]),
            "counts": np.array([[one.sum(), (~one).sum()] for one in chosen]),
        },
    )


@pytest.mark.parametrize("pause_out", ["never", "bernoulli", "bursts", "mostly_stalled"])
@pytest.mark.parametrize("pause_in", ["never", "bernoulli", "bursts", "mostly_stalled"])
def test_random_images(pause_in, pause_out):
    config, seed = CONFIGS["tiny"], sim.choose_seed()
    rng = np.random.default_rng(seed)
    cases = [random_case(config, rng) for _ in range(8)]
    check(config, cases, pause_in=pause_in, pause_out=pause_out, seed=seed)


@pytest.mark.parametrize("pause", ["never", "bernoulli"])
@pytest.mark.parametrize("name", CONFIGS)
def test_extremes_in_every_configuration(name, pause):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    cases = directed_cases(config, rng) + [random_case(config, rng) for _ in range(6)]
    check(config, cases, pause_in=pause, pause_out=pause, seed=seed)


@pytest.mark.parametrize("mode", SelectorMode)
@pytest.mark.parametrize("huge", [False, True])
def test_thresholds_that_take_all_or_none(mode, huge):
    config, seed = CONFIGS["tiny"], sim.choose_seed()
    case = random_case(config, np.random.default_rng(seed), mode=mode.value)
    case.threshold = (1 << score_bits(config)) - 1 if huge else 0
    tokens = case.rows * case.columns
    assert (case.scores() >= case.threshold).sum() == (0 if huge else tokens)
    check(config, [case], pause_in="never", pause_out="never", seed=seed)


def test_golden_model_decides_the_same():
    config, seed = CONFIGS["tiny"], sim.choose_seed()
    rng = np.random.default_rng(seed)
    cases = [random_case(config, rng, mode=0) for _ in range(4)]
    for case in cases:
        z, ref = (np.moveaxis(latent, -1, 0) for latent in (case.z, case.ref))
        selected, reused, scores = select_tokens_int(z, ref, case.patch, case.threshold)
        assert np.array_equal(scores, case.scores())
        assert np.array_equal(np.sort(np.concatenate([selected, reused])), np.arange(len(scores)))
        assert np.array_equal(selected, np.flatnonzero(scores >= case.threshold))
    check(config, cases, pause_in="bernoulli", pause_out="bursts", seed=seed)


@pytest.mark.parametrize("name", ["tiny", "wide"])
def test_one_word_each_cycle(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    cases = [random_case(config, rng) for _ in range(6)]
    result = check(config, cases, pause_in="never", pause_out="never", seed=seed)
    words = np.array([len(case.words(config)) for case in cases])
    begin, end = result.outputs["start"], result.outputs["end"]
    assert result.outputs["first"][0] == begin[0] + 1
    assert np.array_equal(end - begin, words + 5)
    assert np.array_equal(begin[1:] - begin[:-1], words[:-1] + 6)


def test_configuration_is_required():
    with pytest.raises(TypeError, match="config"):
        TokenSelector(None)
