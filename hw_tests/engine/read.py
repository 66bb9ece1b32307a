"""Reads what has left the engine, and checks order and tags of every word."""

from __future__ import annotations

from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Function, FuseCommand, MaskMode
from hw.array.dot_queue import DotGroup
from hw.softmax.normaliser import ResultWord
from hw.softmax.sum_stream import SumWord
from hw_tests.lib import decode
from hw_tests.sim import read_memory

__all__ = ["results"]


def results(
    dut: Any,
    config: CoreConfig,
    command: FuseCommand,
    hash_: BankHash,
    slots: list[int],
    tokens: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return what a command delivered for its rows, which lay in `slots`.

    `out`: [rows, beats * L] results or sums, or [rows, columns] dot products, 0 where there was
    none; with raw sums `total`, `maximum` [rows], with `share` the same of the kept columns as
    `kept_out` and `kept_total`; with `mark` only the latter are in `sums`, as `out` and `total`;
    with GENERATE `mask` [rows, B, columns of a bank], of GELU one row.
    """
    owners = list(zip(slots, map(int, tokens), strict=True))
    raw = command.raw or command.share or command.mark or command.function == Function.GELU
    project = command.function == Function.PROJECT
    for name, wanted in (("results", not raw and not project), ("sums", raw), ("dots", project)):
        arrived = getattr(dut, name).value.to_unsigned()
        assert wanted or not arrived, f"{name}: {arrived} words that nobody asked for"
    if project:
        return {"out": _dots(dut, config, command, hash_, owners)}
    found = _sums(dut, config, command, owners) if raw else _results(dut, config, command, owners)
    if command.mode == MaskMode.GENERATE:
        owners = [0] if command.function == Function.GELU else slots
        found["mask"] = _mask(dut, config, command, owners)
    return found


def _results(
    dut: Any, config: CoreConfig, command: FuseCommand, owners: list[tuple[int, int]]
) -> dict[str, np.ndarray]:
    beats = command.beats
    count = len(owners) * beats
    arrived = dut.results.value.to_unsigned()
    assert arrived == count, f"results: {count} words expected, {arrived} arrived"
    layout = ResultWord(config)
    rows = np.zeros((len(owners), beats, config.array.lanes), dtype=np.int64)
    for i, raw in enumerate(read_memory(dut.result.words, count)):
        word = decode(layout, raw)
        row, beat = divmod(i, beats)
        place = (word["slot"], word["token"], word["beat"], word["last"])
        want = (*owners[row], beat, int(i == count - 1))
        assert place == want, f"results: word {i} is (slot, token, beat, last) {place}, not {want}"
        rows[row, beat] = word["data"]
    return {"out": rows.reshape(len(owners), -1)}


def _sums(
    dut: Any, config: CoreConfig, command: FuseCommand, owners: list[tuple[int, int]]
) -> dict[str, np.ndarray]:
    beats, parts = command.sum_beats(), config.array.lanes // config.vector.lanes
    sets = 1 + command.share
    shape = (len(owners), sets, beats, parts)
    count = int(np.prod(shape))
    arrived = dut.sums.value.to_unsigned()
    assert arrived == count, f"sums: {count} words expected, {arrived} arrived"
    layout = SumWord(config)
    sums = np.zeros((*shape, config.vector.lanes), dtype=np.int64)
    totals, maxima = np.zeros(shape[:2], dtype=np.int64), np.zeros(shape[:2], dtype=np.int64)
    names = ("slot", "token", "kept", "beat", "part", "row_last", "last")
    for i, raw in enumerate(read_memory(dut.sum_word.words, count)):
        word = decode(layout, raw)
        row, kept, beat, part = np.unravel_index(i, shape)
        row_last = beat == beats - 1 and part == parts - 1
        place = tuple(word[name] for name in names)
        second = int(kept) or int(command.mark)
        want = (*owners[row], second, int(beat), int(part), int(row_last), int(i == count - 1))
        assert place == want, f"sums: word {i} is {names} {place}, not {want}"
        sums[row, kept, beat, part] = word["data"]
        said = (word["total"], word["maximum"])
        if beat or part:
            assert said == (totals[row, kept], maxima[row, kept]), f"sums: word {i} says {said}"
        totals[row, kept], maxima[row, kept] = said
    flat = sums.reshape(len(owners), sets, beats * config.array.lanes)
    found = {"out": flat[:, 0], "total": totals[:, 0], "maximum": maxima[:, 0]}
    if command.share:
        assert (maxima[:, 0] == maxima[:, 1]).all(), "sums: two maxima for a row"
        found |= {"kept_out": flat[:, 1], "kept_total": totals[:, 1]}
    return found


def _dots(
    dut: Any,
    config: CoreConfig,
    command: FuseCommand,
    hash_: BankHash,
    owners: list[tuple[int, int]],
) -> np.ndarray:
    """Return [rows, columns]; every column at most once, in the order of each bank."""
    count = dut.dots.value.to_unsigned()
    layout = DotGroup(config)
    groups = command.groups(config)
    banks = np.arange(config.array.banks)
    found = np.zeros((len(owners), config.array.banks, groups), dtype=np.int64)
    row = group = 0
    before = np.full(config.array.banks, -1)
    for i, raw in enumerate(read_memory(dut.dot_group.words, count)):
        word = decode(layout, raw)
        assert row < len(owners), f"dots: group {i} is behind the last row"
        last = int(i == count - 1)
        place = (word["slot"], word["token"], word["group"], word["last"])
        want = (*owners[row], group, last)
        assert place == want, f"dots: {i} is (slot, token, group, last) {place}, not {want}"
        enabled = banks[(word["enable"] >> banks) & 1 == 1]
        local = np.array(word["local"])
        assert (local[enabled] > before[enabled]).all(), f"dots: group {i} repeats columns"
        if command.mode == MaskMode.DENSE:
            assert (local[enabled] == group).all(), f"dots: group {i} has other columns"
        before[enabled] = local[enabled]
        found[row, enabled, local[enabled]] = np.array(word["data"])[enabled]
        group += 1
        if word["row_last"]:
            row, group, before = row + 1, 0, np.full(config.array.banks, -1)
    assert row == len(owners), f"dots: {row} rows arrived, {len(owners)} expected"
    index = np.arange(command.columns)
    return found[:, hash_.bank(index), hash_.local(index)]


def _mask(dut: Any, config: CoreConfig, command: FuseCommand, slots: list[int]) -> np.ndarray:
    """Return bool [rows, B, words * bits] from slots of the mask memory."""
    bits = config.memory.mask_word_bits
    words = -(-command.groups(config) // bits)
    mask = np.zeros((len(slots), config.array.banks, words * bits), dtype=bool)
    for b in range(config.array.banks):
        memory = getattr(dut.engine.mask, f"mask_{b}").words
        for row, slot in enumerate(slots):
            first = (command.mask_slot + slot) * config.mask_words_per_row
            values = np.array(read_memory(memory, words, offset=first), dtype=np.uint64)
            shown = values[:, None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)
            mask[row, b] = shown.ravel()
    return mask
