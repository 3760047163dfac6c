"""A million deliveries through one app on the memory broker, and what they leave behind.

`python -m tests.core.model.endurance --workers 16 --deliveries 1000000` prints the figures.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
from anyio.lowlevel import checkpoint
from pystream import Outcome, PyStream, ack, mount, retry
from pystream.memory import MemoryBroker
from pystream.signal import Signal

__all__ = ["BLOCKS_PER_THOUSAND", "RESIDENT_GROWTH", "Endurance", "Figures", "Handler", "endure"]

BLOCKS_PER_THOUSAND = 1.0
"""What a thousand deliveries may leave behind, in allocated blocks: a leak of one object each is a thousand."""

RESIDENT_GROWTH = 4 << 20
"""What the process may grow by between the first tenth of the deliveries and the last, in bytes."""

_PORTION = 500  # so many are published before the publisher waits for them to be handled


@dataclass(frozen=True)
class Figures:
    """What the process held once so many deliveries were handled.

    Attributes:
        deliveries: How many.
        blocks: `sys.getallocatedblocks()`.
        resident: The resident set, in bytes.
    """

    deliveries: int
    blocks: int
    resident: int


@dataclass(frozen=True)
class Endurance:
    """One run.

    Attributes:
        workers: Of the mount.
        seconds: How long it took.
        figures: After each tenth.
    """

    workers: int
    seconds: float
    figures: tuple[Figures, ...]

    @property
    def blocks_per_thousand(self) -> float:
        """How many blocks a thousand deliveries left behind, between the first tenth and the last."""
        first, last = self.figures[0], self.figures[-1]
        return (last.blocks - first.blocks) / (last.deliveries - first.deliveries) * 1000

    @property
    def growth(self) -> int:
        """By how many bytes the process grew, between the first tenth and the last."""
        return self.figures[-1].resident - self.figures[0].resident

    @property
    def is_flat(self) -> bool:
        return self.blocks_per_thousand <= BLOCKS_PER_THOUSAND and self.growth <= RESIDENT_GROWTH


class Handler:
    """Most deliveries are acknowledged at once; some suspend, some are retried, some have a continuation."""

    def __init__(self) -> None:
        self.handled = 0
        self.awaited = 0
        self.reached = Signal()
        self._retried = False

    async def handle(self, body: bytes) -> Outcome | None:
        number = int(body)
        if number % 8 == 1:
            await checkpoint()

        if number % 64 == 2 and not self._retried:
            self._retried = True
            return retry()

        if number % 64 == 2:
            self._retried = False

        self.handled += 1
        if self.handled >= self.awaited:
            self.reached.wake()

        return ack().and_after(checkpoint) if number % 64 == 3 else None

    async def until(self, count: int) -> None:
        self.awaited = count
        while self.handled < count:
            await self.reached.wait()


async def endure(workers: int, deliveries: int, handler: Handler | None = None) -> Endurance:
    """Publish so many messages, a portion at a time, and handle them all.

    Args:
        workers: Of the mount.
        deliveries: How many; a multiple of 5,000.
        handler: What handles them.
    """
    handler, broker = handler or Handler(), MemoryBroker()
    # In place from the start, so that the figures themselves do not grow.
    started, figures = time.perf_counter(), array("q", [0] * 30)
    app = PyStream("endurance").with_broker(broker, mount(handler.handle, "orders", workers=workers))
    async with app.start() as running:
        out = running.publisher()
        for begin in range(0, deliveries, _PORTION):
            for number in range(begin, begin + _PORTION):
                await out.publish(b"%d" % number, "orders")

            await handler.until(begin + _PORTION)
            if handler.handled % (deliveries // 10) == 0:
                _note(figures, 3 * (handler.handled * 10 // deliveries - 1), handler.handled)

    rows = tuple(Figures(*figures[at : at + 3]) for at in range(0, 30, 3))
    return Endurance(workers, time.perf_counter() - started, rows)


def _note(figures: array[int], at: int, deliveries: int) -> None:
    gc.collect()
    figures[at], figures[at + 1], figures[at + 2] = deliveries, sys.getallocatedblocks(), _resident()


def _resident() -> int:
    """The resident set where the system tells it, else 0."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def main(arguments: list[str]) -> int:
    """Run it, print the figures as JSON, and answer 1 if memory grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.model.endurance")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--deliveries", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    result = anyio.run(endure, options.workers, options.deliveries)
    print(json.dumps(asdict(result)))
    return 0 if result.is_flat else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
