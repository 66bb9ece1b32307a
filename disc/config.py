"""One frozen, validated configuration from which every size in the project is taken.

Hardware, golden model, performance model and synthesis read the same `CoreConfig`.  It is built
from a preset (`preset("edge")`), from a TOML file (`load("my.toml")`) or directly; out-of-range
values raise `ConfigError`, whose message names the field, the value and the allowed range.

Sizes are in elements unless a unit is part of the name.  None of them is published for the
accelerator of arXiv 2605.25798: all presets are choices of this project.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

MAX_MEMORY_WORDS = 4096
"""Most words of any one memory."""

COMMAND_BITS = 512
"""Bits of a word of a program, and most bits of a word of the bus."""

NORM_MARGIN_WORDS = 32
"""Words of later rows for which LayerNorm has room, besides the longest row."""

PAGE_BYTES = 4096
"""An AXI burst stays within such a page."""


class ConfigError(ValueError):
    """A configuration is unknown, unreadable or out of range.  The message says which field."""


class Section(BaseModel):
    """Base of all that is read from TOML: frozen, no unknown fields, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError(f"must be a power of two, got {value}")
    return value


class ArrayConfig(Section):
    """The multiplier grid: B banks, each with one dot-product unit of L lanes."""

    banks: Annotated[int, Field(ge=2, le=64)]
    """B, a power of two: the hash is linear over GF(2)."""
    lanes: Annotated[int, Field(ge=2, le=128)]
    """L, elements of a bank word.  Not necessarily a power of two: 72 suits DiT-XL's heads."""
    rows_in_flight: Annotated[int, Field(ge=2, le=8)] = 4
    """Query rows between mask scan and P*V at any time; hides softmax latency on short rows."""

    _banks = field_validator("banks")(_power_of_two)


class MemoryConfig(Section):
    """On-chip memories of one core."""

    bank_words: Annotated[int, Field(ge=16, le=4096)]
    """Words of L elements in each bank; K and V share them."""
    query_rows: Annotated[int, Field(ge=4, le=4096)]
    """Query rows that the query buffer and the mask memory hold at a time (one row tile)."""
    columns: Annotated[int, Field(ge=16, le=4096)]
    """Most key columns of one operation (one key tile)."""
    mask_word_bits: Annotated[int, Field(ge=4, le=64)] = 32
    """Mask bits that one bank reads at a time."""
    row_words: Annotated[int, Field(ge=0, le=MAX_MEMORY_WORDS)] = 0
    """Words of L elements in the row buffer; 0 stands for `query_rows` rows of the longest head."""
    head_dim: Annotated[int, Field(ge=8, le=256)] = 72
    """Largest head dimension; sets how many words of sums may wait for the vector unit."""

    _mask_word_bits = field_validator("mask_word_bits")(_power_of_two)


class NumberConfig(Section):
    """Number formats.  `docs/arithmetic.md` defines every operation on them."""

    operand_bits: Annotated[int, Field(ge=4, le=8)] = 8
    """Signed q, k, v and results."""
    numerator_bits: Annotated[int, Field(ge=4, le=12)] = 10
    """Unsigned softmax numerators.  8 are enough for 256 tokens; at 1,024 they lose 6 dB."""
    accumulator_bits: Annotated[int, Field(ge=24, le=48)] = 32
    """Signed accumulators of both reductions."""
    score_bits: Annotated[int, Field(ge=12, le=20)] = 16
    """Signed fixed-point scores in units of log2."""
    score_fraction_bits: Annotated[int, Field(ge=3, le=8)] = 6
    """Fraction bits of a score; the exponential's table has 2**score_fraction_bits entries."""
    residual_bits: Annotated[int, Field(ge=12, le=16)] = 16
    """Signed residual stream, and branch sums kept for reused tokens."""
    sharing_bits: Annotated[int, Field(ge=8, le=16)] = 8
    """Signed width of what residual sharing keeps and adds."""
    sharing_guard_bits: Annotated[int, Field(ge=0, le=6)] = 0
    """Of these, bits below a unit of the result.  8 bits without guard are as good as 16 with 4."""


class VectorConfig(Section):
    """The vector unit: everything that is not a matrix product."""

    lanes: Annotated[int, Field(ge=1, le=128)]
    """Elements normalised per cycle; divides `array.lanes`."""
    max_channels: Annotated[int, Field(ge=8, le=4096)] = 1152
    """Longest row of the residual stream.  DiT-XL/2 and PixArt-Sigma are 1,152 wide."""


class BusConfig(Section):
    """A core's port to DRAM."""

    word_bits: Annotated[int, Field(ge=32, le=COMMAND_BITS)] = 128
    """Bits of a word, one a cycle in each direction."""
    burst: Annotated[int, Field(ge=1, le=256)] = 16
    """Most words of a read request, which never crosses a multiple of so many words."""

    _word_bits = field_validator("word_bits", "burst")(_power_of_two)

    @model_validator(mode="after")
    def _fits(self) -> BusConfig:
        if self.burst * self.word_bits < COMMAND_BITS:
            raise ValueError(
                f"burst must be at least {COMMAND_BITS // self.word_bits} with word_bits "
                f"{self.word_bits}, so that a command fits into a request, got {self.burst}"
            )
        if self.burst * self.word_bits > 8 * PAGE_BYTES:
            raise ValueError(
                f"burst must be at most {8 * PAGE_BYTES // self.word_bits} with word_bits "
                f"{self.word_bits}, so that a request stays in {PAGE_BYTES} bytes, "
                f"got {self.burst}"
            )
        return self

    @property
    def word_bytes(self) -> int:
        """Bytes of a word."""
        return self.word_bits // 8

    @property
    def offset_bits(self) -> int:
        """Bits of a byte's position in its word."""
        return self.word_bytes.bit_length() - 1


class SelectorConfig(Section):
    """The token selector."""

    pixels: Annotated[int, Field(ge=1, le=16)] = 2
    """Latent values compared per cycle."""
    latent_bits: Annotated[int, Field(ge=8, le=16)] = 16
    """Signed latent values."""
    max_width: Annotated[int, Field(ge=8, le=1024)] = 256
    """Most patches in an image row, and most patch rows: partial sums kept."""


class DramConfig(Section):
    """External memory of the whole chip."""

    kind: Literal["LPDDR5-6400", "GDDR6-14", "HBM2-2.0", "HBM2E-3.2"]
    channels: Annotated[int, Field(ge=1, le=128)]

    @property
    def peak_gb_per_s(self) -> float:
        """Peak bandwidth of all channels, 1e9 byte/s (figures: Ramulator 2.1's presets)."""
        return self.channels * _DRAM_GB_PER_S_PER_CHANNEL[self.kind]


_DRAM_GB_PER_S_PER_CHANNEL = {
    "LPDDR5-6400": 12.8,
    "GDDR6-14": 28.07,
    "HBM2-2.0": 32.0,
    "HBM2E-3.2": 51.2,
}


class CoreConfig(Section):
    """Everything that fixes the hardware and its environment.

    `digest` identifies it in Verilog headers and reports; two configurations with equal fields
    have equal digests, whatever they are called.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
    cores: Annotated[int, Field(ge=1, le=1024)]
    clock_mhz: Annotated[float, Field(ge=1, le=4000, strict=False)]
    array: ArrayConfig
    memory: MemoryConfig
    number: NumberConfig = NumberConfig()
    vector: VectorConfig
    selector: SelectorConfig = SelectorConfig()
    bus: BusConfig = BusConfig()
    dram: DramConfig

    @model_validator(mode="after")
    def _consistent(self) -> CoreConfig:
        a, m, n = self.array, self.memory, self.number
        if a.lanes % self.vector.lanes:
            raise ValueError(
                f"vector.lanes must divide array.lanes ({a.lanes}), got {self.vector.lanes}"
            )
        if m.columns % a.banks:
            raise ValueError(
                f"memory.columns must be a multiple of array.banks ({a.banks}), got {m.columns}"
            )
        need = 2 * self.columns_per_bank
        if m.bank_words < need:
            raise ValueError(
                f"memory.bank_words must be at least {need}, one word of K and of V for each of "
                f"memory.columns / array.banks = {self.columns_per_bank} columns, "
                f"got {m.bank_words}"
            )
        if self.query_words < self.max_beats:
            raise ValueError(
                f"memory.row_words must be 0 or at least {self.max_beats}, a row of "
                f"memory.head_dim = {m.head_dim}, got {m.row_words}"
            )
        # Deeper memories would have to be built from several; nothing here needs them yet.
        for words, fields in (
            (self.query_words, "memory.query_rows * ceil(memory.head_dim / array.lanes)"),
            (self.mask_lines, "memory.query_rows * mask words of a row"),
            (a.rows_in_flight << self.local_bits, "array.rows_in_flight * columns of a bank"),
            (self.selector.max_width, "selector.max_width"),
            (
                -(-self.vector.max_channels // self.vector.lanes) + NORM_MARGIN_WORDS,
                f"vector.max_channels / vector.lanes + {NORM_MARGIN_WORDS}",
            ),
        ):
            if words > MAX_MEMORY_WORDS:
                raise ValueError(f"{fields} must be at most {MAX_MEMORY_WORDS}, got {words}")
        dot = 2 * n.operand_bits - 1 + (m.head_dim - 1).bit_length()
        axpy = n.operand_bits + n.numerator_bits + (m.columns - 1).bit_length()
        if n.accumulator_bits < max(dot, axpy):
            raise ValueError(
                f"number.accumulator_bits must be at least {max(dot, axpy)} for memory.head_dim "
                f"{m.head_dim} and memory.columns {m.columns}, got {n.accumulator_bits}"
            )
        if n.score_fraction_bits > n.score_bits - 8:
            raise ValueError(
                f"number.score_fraction_bits must be at most score_bits - 8 = {n.score_bits - 8}, "
                f"got {n.score_fraction_bits}"
            )
        return self

    # -- derived sizes -------------------------------------------------------------------------

    @property
    def bank_bits(self) -> int:
        """log2(B)."""
        return self.array.banks.bit_length() - 1

    @property
    def columns_per_bank(self) -> int:
        """Most columns of one operation that a bank holds."""
        return self.memory.columns // self.array.banks

    @property
    def local_bits(self) -> int:
        """Bits of a column's local index, the `hi` of the hash."""
        return max(1, (self.columns_per_bank - 1).bit_length())

    @property
    def column_bits(self) -> int:
        """Bits of a column index."""
        return self.bank_bits + self.local_bits

    @property
    def max_beats(self) -> int:
        """Words of L elements in a row of the largest head dimension."""
        return -(-self.memory.head_dim // self.array.lanes)

    @property
    def query_words(self) -> int:
        """Words in the row buffer."""
        return self.memory.row_words or self.memory.query_rows * self.max_beats

    @property
    def mask_words_per_row(self) -> int:
        """Mask words that one bank keeps for a row of `memory.columns` columns."""
        return -(-self.columns_per_bank // self.memory.mask_word_bits)

    @property
    def mask_lines(self) -> int:
        """Words in one bank's mask memory."""
        return self.memory.query_rows * self.mask_words_per_row

    @property
    def macs_per_core(self) -> int:
        """Multipliers in one core."""
        return self.array.banks * self.array.lanes

    @property
    def peak_tops(self) -> float:
        """Dense peak of the chip in 1e12 operations per second, two per MAC."""
        return 2 * self.macs_per_core * self.cores * self.clock_mhz * 1e6 / 1e12

    @cached_property
    def digest(self) -> str:
        """First 12 hex digits of SHA-256 over all fields but the name."""
        fields = self.model_dump(exclude={"name"})
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def model_copy(self, **options: Any) -> CoreConfig:
        """Copy, with other fields if `update` says so; the copy has a digest of its own."""
        copy = super().model_copy(**options)
        copy.__dict__.pop("digest", None)
        return copy

    # -- TOML ----------------------------------------------------------------------------------

    def to_toml(self) -> str:
        """Return the configuration as TOML; `loads` restores an equal object."""
        return tomli_w.dumps(self.model_dump())


def explain(error: ValidationError, source: str) -> ConfigError:
    """Say in one line a field what is wrong with it."""
    lines: dict[str, str] = {}
    for item in error.errors():
        # Members of a union come with the names of their types; the first to complain is enough.
        field = ".".join(str(part) for part in item["loc"] if str(part).isidentifier())
        message = item["msg"].removeprefix("Value error, ")
        # A missing field's input is the whole section: of no help in a message.
        got = "" if item["type"] in ("missing", "value_error") else f", got {item['input']!r}"
        lines.setdefault(field, f"{source}: {field + ': ' if field else ''}{message}{got}")
    return ConfigError("\n".join(lines.values()))


def build(fields: dict[str, Any], *, source: str = "configuration") -> CoreConfig:
    """Build a configuration from nested mappings, or raise `ConfigError`."""
    try:
        return CoreConfig.model_validate(fields)
    except ValidationError as error:
        raise explain(error, source) from None


def loads(text: str, *, source: str = "configuration") -> CoreConfig:
    """Parse TOML text, or raise `ConfigError`."""
    try:
        fields = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from None
    return build(fields, source=source)


_PRESETS: dict[str, dict[str, Any]] = {
    # Small enough to simulate at hundreds of kilocycles per second, large enough for one head of
    # the shipped 256-token model.
    "tiny": {
        "cores": 1,
        "clock_mhz": 200.0,
        "array": {"banks": 4, "lanes": 8},
        "memory": {"bank_words": 1152, "query_rows": 256, "columns": 256, "head_dim": 72},
        "vector": {"lanes": 4},
        "dram": {"kind": "LPDDR5-6400", "channels": 1},
    },
    # 24 lanes divide the 72-wide heads of DiT-XL/2 and PixArt-Sigma.
    "edge": {
        "cores": 4,
        "clock_mhz": 500.0,
        "array": {"banks": 16, "lanes": 24},
        "memory": {
            "bank_words": 1024,
            "query_rows": 256,
            "columns": 1024,
            "row_words": 2048,
            "head_dim": 72,
        },
        "vector": {"lanes": 8},
        "bus": {"word_bits": 256},
        "dram": {"kind": "LPDDR5-6400", "channels": 4},
    },
    # About the dense peak of an A100 in FP16 (312 TFLOPS) and its memory bandwidth, since that
    # is what the paper compares with.  Many cores of few banks: sparse work fills 16 banks
    # better than 32 or 64.
    "server": {
        "cores": 128,
        "clock_mhz": 1000.0,
        "array": {"banks": 16, "lanes": 72},
        "memory": {
            "bank_words": 1024,
            "query_rows": 256,
            "columns": 4096,
            "row_words": 4096,
            "head_dim": 72,
        },
        "vector": {"lanes": 24},
        "dram": {"kind": "HBM2E-3.2", "channels": 40},
    },
}

PRESETS = tuple(_PRESETS)


def preset(name: str) -> CoreConfig:
    """Return a preset by name, or raise `ConfigError` that lists them."""
    if name not in _PRESETS:
        raise ConfigError(
            f"config: no preset {name!r}; choose {', '.join(PRESETS)}, or give a TOML file"
        )
    return build({"name": name, **_PRESETS[name]}, source=f"preset {name}")


def load(name_or_path: str | Path) -> CoreConfig:
    """Return a preset, or read the TOML file that the argument names (it ends in `.toml`)."""
    if not str(name_or_path).endswith(".toml"):
        return preset(str(name_or_path))
    path = Path(name_or_path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config: cannot read {path}: {error}") from None
    return loads(text, source=str(path))
