"""Commands: fields, words, text, reference page."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disc.config import CoreConfig, preset
from disc.program import (
    COMMANDS,
    WORD_BITS,
    Attend,
    AttendEpilogue,
    Buffer,
    BufferKind,
    Command,
    Fence,
    Forecast,
    LoadColumns,
    LoadList,
    MaskMode,
    Mlp,
    Norm,
    Program,
    Project,
    ProjectEpilogue,
    Queue,
    Record,
    decode,
    encode,
    format_command,
    format_program,
    from_bytes,
    layout,
    parse_program,
    to_bytes,
)
from disc.program.encoding import pack, unpack
from disc.program.fields import MAX_CHANNELS
from disc.program.reference import PAGE, reference, rewritten

CONFIGS = [preset(name) for name in ("tiny", "edge", "server")]
TINY = CONFIGS[0]
each_kind = pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.NAME)


def commands(kind: type[Command], config: CoreConfig) -> st.SearchStrategy[Command]:
    """Any values in the fields' ranges; the fields need not fit each other."""
    fields = {}
    for spec in kind.specs():
        if spec.choices:
            fields[spec.name] = st.sampled_from(spec.choices).map(int)
        else:
            most = spec.most(config) // spec.align
            low = -(-spec.low // spec.align)
            edges = st.sampled_from([low, most])
            fields[spec.name] = (edges | st.integers(low, most)).map(
                lambda value, spec=spec: value * spec.align
            )
    return st.fixed_dictionaries(fields).map(kind.from_values)


def columns(**changes: int) -> LoadColumns:
    fields = {"dram": 64, "stride": 8, "columns": 8, "width": 8, "base": 0}
    return LoadColumns(**(fields | changes))


def attend(**changes: int) -> Attend:
    fields = {
        "list": 0,
        "rows": 4,
        "row_base": 0,
        "width": 8,
        "columns": 8,
        "dot_base": 0,
        "axpy_base": 2,
        "mode": MaskMode.DENSE,
        "score_multiplier": 40000,
        "score_shift": 20,
        "output_multiplier": 40000,
        "output_shift": 16,
    }
    return Attend(**(fields | changes))


# -- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@each_kind
def test_fields_fit_a_word_without_overlap(kind: type[Command], config: CoreConfig) -> None:
    end = 0
    for start, bits in layout(kind, config).values():
        assert start == end
        end += bits
    assert end <= WORD_BITS


@each_kind
def test_words_and_text_give_the_command_back(kind: type[Command]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        config = data.draw(st.sampled_from(CONFIGS))
        command = data.draw(commands(kind, config))
        again = unpack(pack(command, config), config)
        assert again == command
        assert type(again) is kind
        for spec in kind.specs():
            if spec.choices:
                assert isinstance(getattr(again, spec.name), spec.choices)
        assert parse_program(format_command(command)).commands == (command,)

    check()


def test_a_word_by_hand() -> None:
    command = columns(wait=Queue.ARRAY.bit, signal=Queue.ARRAY.bit | Queue.STORE.bit, base=5)
    # opcode, wait, signal, dram, stride, columns, width, base with tiny's widths
    word = 2 | 4 << 5 | 12 << 9 | 64 << 13 | 8 << 53 | 8 << 77 | 8 << 86 | 5 << 99
    assert encode(command, TINY) == word
    assert to_bytes([command], TINY) == word.to_bytes(64, "little")
    assert decode(word, TINY) == command


def test_words_that_no_command_has() -> None:
    word = encode(columns(), TINY)
    for bad, message in (
        (word | 1 << 511, r"word: bits from \d+ up must be 0 for load_columns"),
        (31, "opcode: must be one of 1, 2,"),
        (word & ~(0x1FF << 77), r"columns: must be in \[1, 256\].*got 0"),
        (1 << 512, "word: must be in"),
        (18 | 3 << layout(Attend, TINY)["mode"][0], "mode: must be in|rows: must be in"),
    ):
        with pytest.raises(ValueError, match=message):
            decode(bad, TINY)
    with pytest.raises(ValueError, match=r"command 1: opcode"):
        from_bytes(word.to_bytes(64, "little") + bytes(64), TINY)
    with pytest.raises(ValueError, match="must be a multiple of 64 bytes long, got 63"):
        from_bytes(bytes(63), TINY)


def test_errors_name_index_field_and_range() -> None:
    with pytest.raises(
        ValueError,
        match=r"command 1 \(load_columns\): columns: must be in \[1, 256\] for configuration "
        r"'tiny', got 257; memory.columns limits it",
    ):
        to_bytes([columns(), columns(columns=257)], TINY)
    with pytest.raises(ValueError, match=r"command 0 \(fence\): wait, signal"):
        Program((Fence(wait=1),)).validate(TINY)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (columns(base=1151), r"base: the tile takes words 1151 to 1152, the memory has 1152"),
        (columns(wait=1), "wait: names its own queue load"),
        (columns(dram=1 << 40), "dram: must be in"),
        (LoadList(list=0, dram=2, first=0, rows=1, tokens=4), "dram: must be a multiple of 4"),
        (LoadList(list=0, dram=4, first=4, rows=1, tokens=4), "first: must be below tokens = 4"),
        (attend(axpy_base=1), r"axpy_base: V at 1 \(2 long\) overlaps K at 0"),
        (attend(width=73), r"width: must be in \[1, 72\].*memory.head_dim"),
        (attend(rows=256, row_base=2049), "row_base: the rows takes words 2049 to 2304"),
        (attend(mark=1), "mark: needs mode GENERATE, got DENSE"),
        (attend(mode=MaskMode.MASKED, fill=1), "fill: needs mode GENERATE, got MASKED"),
        (attend(mode=MaskMode.GENERATE, last=0), "mark: GENERATE over several tiles"),
        (attend(mode=MaskMode.MASKED, slot=253), "slot: the tile takes slots 253 to 256"),
        (
            attend(epilogue=AttendEpilogue.KEEP),
            "epilogue: mode DENSE has PLAIN, got KEEP",
        ),
        (
            Project(
                list=0,
                rows=1,
                row_base=0,
                width=8,
                columns=4,
                dot_base=0,
                constants=0,
                epilogue=ProjectEpilogue.WIDE,
                first_column=0,
                dram=1,
                stride=2,
            ),
            "dram, stride: must be even",
        ),
    ],
)
def test_what_a_core_cannot_execute(command: Command, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        command.validate(TINY)


@pytest.mark.parametrize("kind", [Norm, Forecast, Record, Mlp])
def test_longest_row_is_that_of_the_configuration(kind: type[Command]) -> None:
    """Whatever their other fields, commands on the residual stream keep to it."""
    vector = TINY.vector.model_copy(update={"max_channels": 40})
    config = TINY.model_copy(update={"vector": vector, "name": "narrow"})
    name = "out_width" if kind is Mlp else "width"
    lowest = {spec.name: spec.low for spec in kind.specs()}
    if kind is Mlp:
        lowest["axpy_base"] = 1
    command = kind.from_values(lowest | {"wait": 0, "signal": 0, name: 40})
    command.validate(config)
    with pytest.raises(
        ValueError,
        match=rf"{name}: must be in \[1, 40\] for configuration 'narrow', got 41; "
        "vector.max_channels limits it",
    ):
        command.replace(**{name: 41}).validate(config)


def test_residuals_in_wide_formats() -> None:
    number = TINY.number.model_copy(update={"sharing_bits": 16, "sharing_guard_bits": 4})
    config = TINY.model_copy(update={"number": number})
    add = {"mode": MaskMode.MASKED, "epilogue": AttendEpilogue.ADD}
    attend(**add, output_shift=4).validate(config)
    with pytest.raises(ValueError, match="output_shift: must be at least sharing_guard_bits = 4"):
        attend(**add, output_shift=3).validate(config)
    with pytest.raises(ValueError, match="residual, residual_stride: must be even"):
        attend(**add, residual=1).validate(config)


def test_longest_rows_are_those_of_the_golden_core() -> None:
    from golden.integer.layernorm import MAX_CHANNELS as GOLDEN

    assert MAX_CHANNELS == GOLDEN


def test_selector_fields_are_as_wide_as_its_hardware() -> None:
    from hw.units.store.selector import score_bits

    for config in CONFIGS:
        specs = {s.name: s for k in COMMANDS if k.NAME == "select" for s in k.specs()}
        assert specs["threshold"].bits(config) == score_bits(config)


def test_layouts_serve_hardware() -> None:
    from amaranth.lib import data

    for kind in COMMANDS:
        widths = {"opcode": 5, **kind.widths(TINY)}
        struct = data.StructLayout(widths)
        for name, (start, bits) in layout(kind, TINY).items():
            assert (struct[name].offset, struct[name].width) == (start, bits)


# -- text ----------------------------------------------------------------------------------------

LISTING = """
# two buffers
.hash 0x1,0x2
.buffer rows 0x40 1028 input
.buffer x 0x1000 65536 state   # the stream

load_list list=1 dram=rows first=0 rows=16 tokens=256 signal=vector,array
norm list=1 rows=16 dram=x+256 stride=256 width=128 vectors=0x20000 epsilon=7 base=0 wait=load
fence
"""


def test_text_by_hand() -> None:
    program = parse_program(LISTING)
    assert program.hash_rows == (1, 2)
    assert program.buffers == (
        Buffer("rows", 64, 1028, BufferKind.INPUT),
        Buffer("x", 4096, 65536, BufferKind.STATE),
    )
    first, second, third = program.commands
    assert first == LoadList(list=1, dram=64, first=0, rows=16, tokens=256, signal=0b0110)
    assert second.values()["dram"] == 4096 + 256
    assert second.wait == Queue.LOAD.bit
    assert third == Fence()
    program.validate(TINY)
    text = format_program(program)
    assert "dram=x+256 stride=256" in text
    assert parse_program(text) == program


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lod_list list=0", "line 2: no command 'lod_list'; do you mean load_list?"),
        ("zzz", "line 2: no command 'zzz'; choose load_list, load_columns"),
        ("fence now", "fence: want field=value, got 'now'"),
        ("fence speed=1", "fence: no field 'speed'; it has wait, signal"),
        ("load_table", "load_table: dram missing"),
        ("load_table dram=1 dram=2", "dram: given twice"),
        ("load_table dram=-1", "no buffer '-1' declared above; there is x"),
        ("load_table dram=x+y", r"dram: must be a decimal or 0x number, got 'y'"),
        ("load_table dram=y", "dram: no buffer 'y' declared above; there is x"),
        ("load_table dram=1_0", "dram: must be a decimal or 0x number"),
        ("fence wait=gpu", "wait: must be one of load, vector, array, store, got 'gpu'"),
        (".buffer y 0 0 input", "buffer y: must lie in"),
        (".buffer y 0 8 ram", "kind must be one of input, constant, state"),
        (".buffer y 0", "want name, address, size and kind"),
        (".buffer 1y 0 8 input", "name must match"),
        (".buffer x 0 8 input", "buffer x: declared twice"),
        (".hash 1 2", "want one word"),
        ("select mode=third", "mode: must be one of difference, second_difference"),
        ("select update=2", "update: must be 0 or 1, got '2'"),
    ],
)
def test_bad_text(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        parse_program(f".buffer x 64 8 input\n{line}\n")
    assert str(error.value).startswith("line 2: ")


def test_buffers_that_overlap() -> None:
    with pytest.raises(ValueError, match="buffer y: at 0x48, but x ends at 0x50"):
        parse_program(".buffer y 0x48 8 input\n.buffer x 0x40 16 input\n")


# -- reference page ------------------------------------------------------------------------------


def test_page_holds_the_declarations() -> None:
    text = PAGE.read_text()
    assert rewritten(text) == text, "run python -m disc.program.reference"
    for kind in COMMANDS:
        section = text.split(f"### {kind.NAME}\n")[1].split("###")[0]
        assert f"Opcode {kind.OPCODE}, queue {kind.QUEUE.name.lower()}" in section
        names = re.findall(r"^\| `(\w+)` \| \d+:\d+ \|", section, flags=re.M)
        assert names == [s.name for s in kind.specs()[2:]]


def test_every_field_says_what_it_means() -> None:
    for kind in COMMANDS:
        for spec in kind.specs():
            assert len(spec.meaning) > 3, (kind.NAME, spec.name)
    assert reference(TINY) != reference(CONFIGS[1])
