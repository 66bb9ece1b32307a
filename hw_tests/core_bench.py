"""cocotb side of the core's test: everything through the ports, nothing through a backdoor."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from disc.config import CoreConfig, loads
from disc.hashing import BankHash
from disc.program import FuseCommand, MaskMode
from hw.core import CoreCommand
from hw.distributor import OperandWord
from hw.engine import QueryWord
from hw.hash import matrix_layout
from hw.mask_controller import MaskLine
from hw.normaliser import ResultWord
from hw.selector import SelectorMode, command_layout, max_beats, pixels_layout, summary_layout
from hw_tests.lib import PAUSES, StreamSink, StreamSource, encode, rng, start
from hw_tests.sim import inputs, outputs, read_memory


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def select_then_attend(dut: Any) -> None:
    """Select tokens, run one head over two windows of the list, hand back what left the core."""
    given = inputs()
    config = loads(given["config"])
    hash_ = BankHash(config.bank_bits, config.local_bits, tuple(map(int, given["hash"])))
    fields = dict(zip(FuseCommand.widths(config), map(int, given["command"]), strict=True))
    await start(dut)
    dut.matrix.value = encode(matrix_layout(config), list(hash_.rows))
    core = _Core(dut, config, PAUSES[given["pause"]])

    # A first list must leave no trace in the second.
    patch = int(given["patch"])
    core.select(given["z"], given["ref"], patch, int(given["first_threshold"]))
    await core.summary.take(1)
    before, reused_before = len(core.selected.received), len(core.reused.received)
    core.select(given["z"], given["ref"], patch, int(given["threshold"]))
    await core.summary.take(1)
    selected = core.selected.received[before:]
    core.load(given["k"], fields["dot_base"], fields["beats"])
    core.load(given["v"], fields["axpy_base"], fields["beats"])

    masks = hash_.to_bank_order(given["mask"].astype(bool))
    half = -(-len(selected) // 2)
    spare = _spare_lines(config, half)
    for first in range(0, len(selected), half):
        tokens = selected[first : first + half]
        core.load_queries(given["q"][tokens], fields["beats"])
        if fields["mode"] == MaskMode.MASKED:
            core.load_masks(masks[tokens])
        await core.loaded()
        window = {"first": first, "count": len(tokens)}
        core.command.send([{"fuse": fields, "rows": window}])
        if fields["mode"] == MaskMode.GENERATE and first == 0:
            # Lines for other slots; the row's next generated line wants the memory among them.
            await core.lines.take(1)
            core.masks.send(spare)
        await core.results.take(len(tokens) * fields["beats"])
        await core.idle()
        await core.loaded()
    if fields["mode"] == MaskMode.GENERATE:
        for line in spare:
            for bank, bits in enumerate(line["bits"]):
                memory = getattr(dut.engine.mask, f"mask_{bank}").words
                assert read_memory(memory, 1, offset=line["address"]) == [bits], line
    words = core.results.received
    outputs(
        before=before,
        selected=np.array(selected),
        reused=np.array(core.reused.received[reused_before:]),
        counts=np.array([core.summary.received[1][name] for name in ("selected", "reused")]),
        tokens=np.array([word["token"] for word in words]),
        slots=np.array([word["slot"] for word in words]),
        beats=np.array([word["beat"] for word in words]),
        data=np.array([word["data"] for word in words]),
        line_address=np.array([line["address"] for line in core.lines.received]),
        line_bits=np.array([line["bits"] for line in core.lines.received]),
    )


def _spare_lines(config: CoreConfig, used_slots: int) -> list[dict[str, Any]]:
    """Return random lines for every slot from `used_slots` on."""
    random = rng("spare lines")
    return [
        {
            "address": address,
            "bits": [
                random.getrandbits(config.memory.mask_word_bits) for _ in range(config.array.banks)
            ],
        }
        for address in range(used_slots * config.mask_words_per_row, config.mask_lines)
    ]


class _Core:
    """Drivers of all ports."""

    def __init__(self, dut: Any, config: CoreConfig, pause: Any):
        self.dut, self.config = dut, config
        index = (config.selector.max_width**2 - 1).bit_length()

        def source(name: str, shape: Any) -> StreamSource:
            return StreamSource(dut, name, shape, pause)

        def sink(name: str, shape: Any) -> StreamSink:
            return StreamSink(dut, name, shape, pause)

        self.selection = source("select", command_layout(config))
        self.pixels = source("pixels", pixels_layout(config))
        self.operands = source("operands", OperandWord(config))
        self.queries = source("queries", QueryWord(config))
        self.masks = source("masks", MaskLine(config))
        self.command = source("command", CoreCommand(config))
        self.selected = sink("selected", index)
        self.reused = sink("reused", index)
        self.summary = sink("summary", summary_layout(config))
        self.results = sink("o", ResultWord(config))
        self.lines = sink("masks_out", MaskLine(config))

    def select(self, z: np.ndarray, ref: np.ndarray, patch: int, threshold: int) -> None:
        """Send a one-channel latent."""
        pixels = self.config.selector.pixels
        rows, columns = (size // patch for size in z.shape)
        beats = -(-patch // pixels)
        assert beats <= max_beats(self.config)
        self.selection.send(
            [
                {
                    "rows": rows,
                    "columns": columns,
                    "patch": patch,
                    "beats": beats,
                    "mode": SelectorMode.DIFFERENCE.value,
                    "threshold": threshold,
                }
            ]
        )
        words = np.zeros((2, z.shape[0], columns, beats * pixels), dtype=np.int64)
        for plane, image in zip(words, (z, ref), strict=True):
            plane[:, :, :patch] = image.reshape(z.shape[0], columns, patch)
        for a, b in zip(*words.reshape(2, -1, pixels), strict=True):
            self.pixels.send(
                [[{"z": int(x), "ref": int(y), "prev": 0} for x, y in zip(a, b, strict=True)]]
            )

    def _beats(self, x: np.ndarray, beats: int) -> np.ndarray:
        lanes = self.config.array.lanes
        padded = np.zeros((len(x), beats * lanes), dtype=np.int64)
        padded[:, : x.shape[1]] = x
        return padded.reshape(len(x), beats, lanes)

    def load(self, x: np.ndarray, base: int, beats: int) -> None:
        """Send the columns of K or V, in random order."""
        groups = -(-len(x) // self.config.array.banks)
        words = [
            {"column": j, "offset": base + n * groups, "data": data.tolist()}
            for j, column in enumerate(self._beats(x, beats))
            for n, data in enumerate(column)
        ]
        rng(f"columns at {base}").shuffle(words)
        self.operands.send(words)

    def load_queries(self, q: np.ndarray, beats: int) -> None:
        """Send the queries of a window: row n into slot n."""
        self.queries.send(
            {"address": slot * self.config.max_beats + n, "data": data.tolist()}
            for slot, row in enumerate(self._beats(q, beats))
            for n, data in enumerate(row)
        )

    def load_masks(self, masks: np.ndarray) -> None:
        """Send the mask lines of a window, from bool [rows, B, columns of a bank]."""
        bits = self.config.memory.mask_word_bits
        padded = np.pad(masks, ((0, 0), (0, 0), (0, -masks.shape[2] % bits)))
        for slot, row in enumerate(padded):
            for n in range(row.shape[1] // bits):
                part = row[:, n * bits : (n + 1) * bits]
                values = [sum(1 << i for i in np.flatnonzero(bank)) for bank in part]
                address = slot * self.config.mask_words_per_row + n
                self.masks.send([{"address": address, "bits": values}])

    async def loaded(self) -> None:
        """Wait until everything sent has been accepted and written."""
        for source in (self.operands, self.queries, self.masks):
            await source.drained()
        for _ in range(3):
            await RisingEdge(self.dut.clk)

    async def idle(self) -> None:
        """Wait for the end of the command: its last mask line may come after its last result."""
        while self.dut.busy.value:
            await RisingEdge(self.dut.clk)
        for _ in range(2):
            await RisingEdge(self.dut.clk)
