"""How a row is measured: between two runs of its floor, several times, garbage collection off."""

from __future__ import annotations

import gc
import statistics
from dataclasses import dataclass, field
from typing import Any

from benchmarks.consume import Subject

FASTER = "times faster"
"""The unit of a gain."""


@dataclass(slots=True)
class Series:
    """The rounds of one subject.

    Attributes:
        seconds: Per delivery, by round.
        ratios: To the mean of the floor before and the floor after, by round.
    """

    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    async def add(self, floor: Subject, subject: Subject, count: int, floor_count: int) -> None:
        """One more round: floor, subject, floor."""
        before = await _timed(floor, floor_count)
        taken = await _timed(subject, count)
        after = await _timed(floor, floor_count)
        self.seconds.append(taken)
        self.ratios.append(2 * taken / (before + after))


async def _timed(subject: Subject, count: int) -> float:
    gc.collect()
    gc.disable()
    try:
        return await subject(count) / count
    finally:
        gc.enable()


def row(name: str, unit: str, values: list[float], ratios: list[float], target: float | None) -> dict[str, Any]:
    """A row of the report; of times the lowest value is the best, of rates and gains the highest."""
    ordered = sorted(values, reverse=unit == FASTER or unit.endswith("/s"))
    return {
        "name": name,
        "unit": unit,
        "best": ordered[0],
        "median": statistics.median(ordered),
        "worst": ordered[-1],
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
        "target": target,
        "verdict": "indistinguishable" if _within_spread(ratios) else "measured",
        "peers": [],
    }


def _within_spread(ratios: list[float]) -> bool:
    """Whether the gap to 1 is below the spread: the middle half of the rounds, so that one bad round is no verdict."""
    low, median, high = statistics.quantiles(ratios, n=4)
    return abs(median - 1) < high - low
