# amaranth: UnusedElaboratable=no
from __future__ import annotations

import re
from pathlib import Path

import pytest

from disc import config as configs
from disc.config import PRESETS, ConfigError, build, load, loads, preset
from disc.program import FuseCommand, MaskMode


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_toml(name: str) -> None:
    config = preset(name)
    again = loads(config.to_toml())
    assert again == config
    assert again.digest == config.digest


def test_digest_depends_on_every_field_but_the_name() -> None:
    base = preset("tiny").model_dump()
    digest = build(base).digest
    assert build(base | {"name": "other"}).digest == digest
    changes = {
        ("cores",): 2,
        ("clock_mhz",): 201.0,
        ("array", "rows_in_flight"): 5,
        ("memory", "query_rows"): 128,
        ("number", "score_bits"): 17,
        ("vector", "lanes"): 2,
        ("selector", "pixels"): 1,
        ("dram", "channels"): 2,
    }
    digests = {digest}
    for path, value in changes.items():
        fields = preset("tiny").model_dump()
        place = fields
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        digests.add(build(fields).digest)
    assert len(digests) == len(changes) + 1


@pytest.mark.parametrize(
    ("section", "field", "value", "message"),
    [
        ("array", "banks", 12, "array.banks: must be a power of two, got 12"),
        ("array", "banks", 1, "array.banks: Input should be greater than or equal to 2, got 1"),
        ("array", "lanes", 7, "vector.lanes must divide array.lanes (7)"),
        ("memory", "columns", 250, "memory.columns must be a multiple of array.banks (4)"),
        ("memory", "bank_words", 64, "memory.bank_words must be at least 128"),
        ("memory", "mask_word_bits", 24, "memory.mask_word_bits: must be a power of two"),
        ("memory", "query_rows", 2048, "must be at most 4096, got 18432"),
        ("number", "accumulator_bits", 24, "number.accumulator_bits: "),
        ("number", "score_fraction_bits", 8, None),
        ("dram", "kind", "DDR9", "dram.kind: "),
        ("dram", "speed", 3, "dram.speed: Extra inputs are not permitted"),
        ("array", "lanes", "8", "array.lanes: Input should be a valid integer"),
    ],
)
def test_bad_fields_are_named(section: str, field: str, value: object, message: str | None) -> None:
    fields = preset("tiny").model_dump()
    fields[section][field] = value
    if message is None:
        assert getattr(getattr(build(fields), section), field) == value
        return
    if field == "accumulator_bits":
        fields["memory"]["columns"] = 1024
        fields["memory"]["bank_words"] = 4096
        message = "number.accumulator_bits must be at least 28"
    with pytest.raises(ConfigError, match=re.escape(message)):
        build(fields)


def test_longest_row_that_fits_a_memory() -> None:
    fields = preset("tiny").model_dump()
    fields["vector"] = {"lanes": 1, "max_channels": 4064}
    build(fields)
    fields["vector"]["max_channels"] = 4065
    message = "vector.max_channels / vector.lanes + 32 must be at most 4096, got 4097"
    with pytest.raises(ConfigError, match=re.escape(message)):
        build(fields)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("huge", "config: no preset 'huge'; choose tiny, edge, server"),
        ("missing.toml", "config: cannot read missing.toml"),
    ],
)
def test_unknown_configurations(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(source)


def test_broken_toml(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("name = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(path)


def test_derived_sizes_of_edge() -> None:
    edge = preset("edge")
    assert (edge.bank_bits, edge.local_bits, edge.column_bits) == (4, 6, 10)
    assert (edge.max_beats, edge.query_words) == (3, 2048)
    assert (edge.mask_words_per_row, edge.mask_lines) == (2, 512)
    assert edge.peak_tops == pytest.approx(2 * 16 * 24 * 4 * 500e6 / 1e12)
    assert edge.dram.peak_gb_per_s == pytest.approx(51.2)


def test_memory_limit_is_the_hardware_s() -> None:
    from hw.sram import Sram

    with pytest.raises(ValueError, match=r"depth: must be in \[1, 4096\], got 4097"):
        Sram(8, configs.MAX_MEMORY_WORDS + 1)


def test_documented_widths_are_the_real_ones() -> None:
    text = (Path(__file__).parents[2] / "docs" / "program.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| (\d+) \|", text, flags=re.M)
    assert {name: int(bits) for name, bits in table} == FuseCommand.widths(preset("edge"))
    assert [name for name, _ in table] == list(FuseCommand.widths(preset("edge")))


@pytest.mark.parametrize("config", [preset(name) for name in PRESETS], ids=lambda c: c.name)
def test_every_valid_command_fits_its_fields(config: configs.CoreConfig) -> None:
    columns = config.memory.columns
    groups = columns // config.array.banks
    command = FuseCommand(
        mode=MaskMode.GENERATE,
        columns=columns,
        beats=1,
        dot_base=config.memory.bank_words - groups,
        axpy_base=0,
        score_multiplier=65535,
        score_shift=63,
        output_multiplier=65535,
        output_shift=32,
        threshold=1 << 20,
    )
    command.validate(config)
    for name, bits in FuseCommand.widths(config).items():
        assert 0 <= command.encode()[name] < 1 << bits, name


def test_a_changed_copy_has_its_own_digest() -> None:
    tiny = preset("tiny")
    before = tiny.digest
    changed = tiny.model_copy(update={"vector": tiny.vector.model_copy(update={"lanes": 8})})
    assert changed.digest == build(changed.model_dump()).digest != before
