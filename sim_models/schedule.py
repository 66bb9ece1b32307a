"""Cycles of one command on the engine, by the recurrence that the hardware obeys."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache


@dataclass(frozen=True)
class EngineConstants:
    """Latencies between the stages of a row, in cycles."""

    command: int
    """Command accepted to first row accepted."""
    listing: int
    """Hand-over of a row to the scanners and back, on top of the scan itself."""
    score: int
    """SOFTMAX: last dot step issued to the row's maximum known."""
    look_up: int
    """GELU: last dot step issued to the row's last operand stored."""
    slot: int
    """Last axpy step issued to the row's slot listing another row."""
    scale: int
    """First word of a row: its last step issued to the normaliser reading it."""
    word: int
    """Any other word, and all words that are not normalised: last step issued to being read."""
    room: int
    """Last element of a word read to another word being begun in its place."""
    deliver: int
    """Last element read by the normaliser to the command's end."""
    deliver_sums: int
    """Last element of sums read to the command's end."""
    dots: int
    """PROJECT: last dot step issued to the row's slot listing another row."""
    deliver_dots: int
    """PROJECT: last dot step issued to the command's end."""
    generate: int
    """Last step of a row's first word issued to the mask generator comparing its first column."""
    generate_gap: int
    """From one row to the next in the mask generator, on top of one cycle per column of a bank."""
    half: int
    """Last column compared to its half being written again."""
    kept: int
    """Last column compared to the sum over the kept columns being started."""
    deliver_mask: int
    """Last column compared to the command's end."""
    hot: int
    """GELU with GENERATE: from the end of everything else to the command's, on top of a cycle for
    each line of a mask row."""


def constant_names() -> list[str]:
    """Names of the constants, in order."""
    return [f.name for f in fields(EngineConstants)]


@dataclass(frozen=True)
class Plan:
    """What a command does with every row."""

    beats: int
    """Words of a row."""
    axpy_beats: int
    """Words of a row of sums; 0 for PROJECT."""
    reading: int
    """Cycles in which a word of sums is read."""
    room: int
    """Words of sums on their way."""
    rows_in_flight: int
    """Slots between listing and axpy."""
    looked_up: bool = False
    """GELU."""
    normalised: bool = True
    comparing: int = 0
    """If a mask is generated, cycles from a row's first column in the generator to its last: a
    column of every bank a cycle, and with `fill` the same again and one cycle between."""
    marked: bool = False
    """Of the sums over all columns only the numerators of the first word are made."""
    hot_lines: int = 0
    """Lines of the mask of hot columns."""


@lru_cache(maxsize=256)
def schedule(
    steps: tuple[float, ...],
    listing: tuple[float, ...],
    plan: Plan,
    c: EngineConstants,
    kept: tuple[float, ...] = (),
) -> float:
    """Return the cycles from acceptance of a command to its end.

    The array serves the kept columns' sum of the last row, else the axpy of the oldest row whose
    values are there, else the dot of the next row that has been listed; it idles only when there is
    none.  Once begun, an axpy waits for room for each of its words.

    Parameters
    ----------
    steps
        Per row: kept columns of the fullest bank, at least 1.
    listing
        Per row: cycles of its scan, the most of any bank: the sum over its mask words of
        `max(1, kept)`, less 1 if the last word is empty.
    plan, c
        What is done, and measured latencies.
    kept
        With residual sharing or a second pass, per row: columns of the fullest bank that the new
        mask keeps.
    """
    return _Schedule(steps, listing, plan, c, kept).run()


class _Schedule:
    """State of a command: when each row passed each stage."""

    def __init__(
        self,
        steps: tuple[float, ...],
        listing: tuple[float, ...],
        plan: Plan,
        c: EngineConstants,
        kept: tuple[float, ...],
    ) -> None:
        self.steps, self.listing, self.plan, self.c, self.kept = steps, listing, plan, c, kept
        self.time = 0.0
        """When the array is free."""
        self.listed: list[float] = []
        self.scored: list[float] = []
        self.released: list[float] = []
        """When a row's slot lists another."""
        self.read_end: list[float] = []
        """Of words."""
        self.made: list[float] = []
        """When a row's last column was compared with the threshold, for the last time."""
        self.shared = 0

    def run(self) -> float:
        rows = len(self.steps)
        summed = 0
        while max(len(self.released), len(self.scored)) < rows or self._open(summed):
            self._list()
            never = float("inf")
            kept_ready = axpy_ready = dot_ready = never
            if self.kept and self.shared < summed:
                kept_ready = self.made[self.shared] + self.c.kept
            elif self.plan.axpy_beats and summed < len(self.scored):
                axpy_ready = self._axpy_ready(summed)
            if len(self.scored) < len(self.listed):
                dot_ready = self.listed[len(self.scored)]
            self.time = max(self.time, min(kept_ready, axpy_ready, dot_ready))
            if kept_ready <= self.time:
                self._sum(self.kept[self.shared], first=False)
                self.shared += 1
            elif axpy_ready <= self.time:
                self._sum(self.steps[summed], first=True)
                self.released.append(self.time + self.c.slot)
                summed += 1
            else:
                self._dot()
        return self._end()

    def _open(self, summed: int) -> bool:
        if not self.plan.axpy_beats:
            return False
        return summed < len(self.steps) or (bool(self.kept) and self.shared < len(self.steps))

    def _list(self) -> None:
        """List as far as slots allow: slot i is that of row i - rows_in_flight."""
        in_flight = self.plan.rows_in_flight
        while len(self.listed) < len(self.steps) and (
            len(self.listed) - in_flight < len(self.released)
        ):
            i = len(self.listed)
            begin = self.listed[-1] if self.listed else float(self.c.command)
            if i >= in_flight:
                begin = max(begin, self.released[i - in_flight])
            self.listed.append(begin + self.c.listing + self.listing[i])

    def _axpy_ready(self, row: int) -> float:
        ready = self.scored[row]
        if self.plan.comparing and row >= 2:
            ready = max(ready, self.made[row - 2] + self.c.half)
        return ready

    def _dot(self) -> None:
        self.time += self.steps[len(self.scored)] * self.plan.beats
        if not self.plan.axpy_beats:
            self.scored.append(self.time)
            self.released.append(self.time + self.c.dots)
        else:
            latency = self.c.look_up if self.plan.looked_up else self.c.score
            self.scored.append(self.time + latency)

    def _sum(self, steps: float, *, first: bool) -> None:
        c, words = self.c, self.read_end
        silent = first and self.plan.marked
        for beat in range(1 if silent else self.plan.axpy_beats):
            if len(words) >= self.plan.room and not silent:
                self.time = max(self.time, words[-self.plan.room] + c.room)
            self.time += steps
            latency = c.scale if self.plan.normalised and beat == 0 else c.word
            begin = max(self.time + latency, words[-1] if words else 0.0)
            if not silent:
                words.append(begin + self.plan.reading)
            if beat == 0 and first and self.plan.comparing:
                begin = self.time + c.generate
                if self.made:
                    begin = max(begin, self.made[-1] + c.generate_gap)
                self.made.append(begin + self.plan.comparing)

    def _end(self) -> float:
        if not self.plan.axpy_beats:
            return self.time + self.c.deliver_dots
        deliver = self.c.deliver if self.plan.normalised else self.c.deliver_sums
        end = self.read_end[-1] + deliver
        if self.plan.hot_lines:
            end += self.plan.hot_lines + self.c.hot
        return max(end, self.made[-1] + self.c.deliver_mask) if self.made else end
