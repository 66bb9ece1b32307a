"""The cocotb side of `simulate`: load, start, wait, read."""

from __future__ import annotations

import time
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge, SimTimeoutError, with_timeout

from disc.config import CoreConfig, loads
from disc.hashing import BankHash
from disc.program import FuseCommand, MaskMode
from hw.command import FuseLayout, RowEntry
from hw.hash import matrix_layout
from hw.mask_controller import MaskLine
from hw.normaliser import ResultWord
from hw_tests.lib import CLOCK_NS, decode, encode, rng, start
from hw_tests.sim import inputs, outputs, pack_words, read_memory, write_memory


@cocotb.test()
async def heads(dut: Any) -> None:
    """Run every job of the caller."""
    given = inputs()
    config = loads(given["config"])
    dut.start.value = 0
    await start(dut)
    for number in range(given["jobs"]):
        prefix = f"{number}."
        job = {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}
        results = await _head(dut, config, job)
        outputs(**{prefix + name: value for name, value in results.items()})


async def _head(dut: Any, config: CoreConfig, job: dict[str, Any]) -> dict[str, Any]:
    hash_ = BankHash(config.bank_bits, config.local_bits, tuple(map(int, job["hash"])))
    fields = dict(zip(FuseCommand.widths(config), map(int, job["command"]), strict=True))
    dut.matrix.value = encode(matrix_layout(config), list(hash_.rows))
    dut.command.value = encode(FuseLayout(config), fields)
    for stream in ("rows", "results", "masks"):
        getattr(dut, f"stall_{stream}").value = int(job["stall"])

    _load_columns(dut, config, hash_, fields, job["k"], fields["dot_base"])
    _load_columns(dut, config, hash_, fields, job["v"], fields["axpy_base"])

    rows = len(job["q"])
    out, masks, counters, seconds = [], [], [], 0.0
    for begin in range(0, rows, config.memory.query_rows):
        tile = slice(begin, min(begin + config.memory.query_rows, rows))
        # Slots in random order: nothing may depend on a row lying where it is computed.
        count = tile.stop - tile.start
        slots = rng(f"slots {begin}").sample(range(config.memory.query_rows), count)
        tokens = job["tokens"][tile]
        _load_queries(dut, config, fields["beats"], job["q"][tile], slots)
        if fields["mode"] == MaskMode.MASKED:
            _load_mask(dut, config, hash_, job["mask"][tile], slots)
        entry = RowEntry(config)
        for i, (slot, token) in enumerate(zip(slots, tokens, strict=True)):
            word = encode(entry, {"slot": slot, "token": int(token), "last": 0})
            write_memory(dut.row_list.words, [word], offset=i)
        dut.row_count.value = count
        begun = time.perf_counter()
        await _execute(dut, limit=_patience(config, fields, count, int(job["stall"])))
        seconds += time.perf_counter() - begun
        counters.append(_counters(dut))
        out.append(_read_results(dut, config, fields["beats"], slots, tokens, job["q"].shape[1]))
        if fields["mode"] == MaskMode.GENERATE:
            groups = -(-fields["columns"] // config.array.banks)
            masks.append(_read_mask(dut, config, groups, slots))
    results = {"out": np.concatenate(out), "counters": np.array(counters), "seconds": seconds}
    if masks:
        results["mask"] = np.concatenate(masks)
    return results


def _patience(config: CoreConfig, fields: dict[str, int], rows: int, stall: int) -> int:
    """Return cycles after which a command must have ended, however it was stalled."""
    groups = -(-fields["columns"] // config.array.banks)
    dense = rows * (2 * groups * fields["beats"] + 8 * config.array.lanes + 100)
    return 1000 + 4 * dense * 256 // (256 - stall)


async def _execute(dut: Any, *, limit: int) -> None:
    edge = RisingEdge(dut.clk)
    dut.start.value = 1
    await edge
    dut.start.value = 0
    await edge
    await edge
    if dut.busy.value:
        try:
            await with_timeout(FallingEdge(dut.busy), limit * CLOCK_NS, "ns")
        except SimTimeoutError:
            raise AssertionError(f"engine: still busy after {limit} cycles") from None
    await edge
    await edge


def _counters(dut: Any) -> list[int]:
    word = dut.counters.value.to_unsigned()
    return [word >> shift & 0xFFFF_FFFF for shift in range(0, 160, 32)]


def _beats(x: np.ndarray, config: CoreConfig, beats: int) -> np.ndarray:
    """Pad rows [n, d] with zeros to [n, beats, L]."""
    lanes = config.array.lanes
    padded = np.zeros((len(x), beats * lanes), dtype=np.int64)
    padded[:, : x.shape[1]] = x
    return padded.reshape(len(x), beats, lanes)


def _load_columns(
    dut: Any,
    config: CoreConfig,
    hash_: BankHash,
    fields: dict[str, int],
    x: np.ndarray,
    base: int,
) -> None:
    columns = np.arange(len(x))
    bank, local = hash_.bank(columns), hash_.local(columns)
    groups = -(-len(x) // config.array.banks)
    beats = fields["beats"]
    words = _beats(x, config, beats)
    for b in range(config.array.banks):
        image = np.zeros((beats, groups, config.array.lanes), dtype=np.int64)
        mine = bank == b
        image[:, local[mine]] = words[mine].transpose(1, 0, 2)
        memory = getattr(dut.engine.distributor, f"bank_{b}").words
        flat = image.reshape(beats * groups, config.array.lanes)
        write_memory(memory, pack_words(flat, config.number.operand_bits), offset=base)


def _load_queries(
    dut: Any, config: CoreConfig, beats: int, q: np.ndarray, slots: list[int]
) -> None:
    for slot, row in zip(slots, _beats(q, config, beats), strict=True):
        words = pack_words(row, config.number.operand_bits)
        write_memory(dut.engine.queries_buffer.words, words, offset=slot * config.max_beats)


def _load_mask(
    dut: Any, config: CoreConfig, hash_: BankHash, mask: np.ndarray, slots: list[int]
) -> None:
    bits = config.memory.mask_word_bits
    in_banks = hash_.to_bank_order(mask.astype(bool))
    padded = np.pad(in_banks, ((0, 0), (0, 0), (0, -in_banks.shape[2] % bits)))
    for b in range(config.array.banks):
        memory = getattr(dut.engine.mask, f"mask_{b}").words
        for slot, row in zip(slots, padded[:, b], strict=True):
            words = pack_words(row.reshape(-1, bits).astype(np.int64), 1)
            write_memory(memory, words, offset=slot * config.mask_words_per_row)


def _read_results(
    dut: Any, config: CoreConfig, beats: int, slots: list[int], tokens: np.ndarray, d: int
) -> np.ndarray:
    count = len(slots) * beats
    arrived = dut.results.value.to_unsigned()
    assert arrived == count, f"results: {count} words expected, {arrived} arrived"
    layout = ResultWord(config)
    rows = np.zeros((len(slots), beats, config.array.lanes), dtype=np.int64)
    for i, raw in enumerate(read_memory(dut.result.words, count)):
        word = decode(layout, raw)
        row, beat = divmod(i, beats)
        place = (word["slot"], word["token"], word["beat"], word["last"])
        want = (slots[row], int(tokens[row]), beat, int(i == count - 1))
        assert place == want, f"results: word {i} is (slot, token, beat, last) {place}, not {want}"
        rows[row, beat] = word["data"]
    flat = rows.reshape(len(slots), -1)
    assert not flat[:, d:].any(), "results: the lanes beyond the head dimension are not zero"
    return flat[:, :d]


def _read_mask(dut: Any, config: CoreConfig, groups: int, slots: list[int]) -> np.ndarray:
    """Return bool [rows, B, columns in a bank] from the mask lines that left the engine."""
    bits, words = config.memory.mask_word_bits, -(-groups // config.memory.mask_word_bits)
    count = len(slots) * words
    arrived = dut.lines.value.to_unsigned()
    assert arrived == count, f"mask: {count} lines expected, {arrived} arrived"
    layout = MaskLine(config)
    mask = np.zeros((len(slots), config.array.banks, words * bits), dtype=bool)
    for i, raw in enumerate(read_memory(dut.mask_line.words, count)):
        line = decode(layout, raw)
        row, word = divmod(i, words)
        want = slots[row] * config.mask_words_per_row + word
        assert line["address"] == want, f"mask: line {i} has address {line['address']}, not {want}"
        for b, value in enumerate(line["bits"]):
            stored = getattr(dut.engine.mask, f"mask_{b}").words[want].value.to_unsigned()
            assert stored == value, f"mask: bank {b}, line {want}: memory differs from stream"
            mask[row, b, word * bits : (word + 1) * bits] = (value >> np.arange(bits)) & 1
    return mask
