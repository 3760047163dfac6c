"""The child process that valgrind counts: `python -m benchmarks.counted floor|service HANDLED BUILT`.

Every run builds the same number of deliveries and differs from its twin only in how many
of them are handled, so the difference of two runs is the handling alone. Uses nothing but
public names, so that it also runs over another revision of the packages.
"""

from __future__ import annotations

import gc
import itertools
import logging
import sys

import anyio
import pystream

from benchmarks.consume import through_floor, through_service
from benchmarks.stand_ins import ready


async def count(kind: str, handled: int, built: int) -> None:
    """Build all, handle some."""
    gc.disable()
    deliveries = ready(built)
    kept = [deliveries.pop() for _ in itertools.repeat(None, built)]
    deliveries.extend(kept[:handled])
    await (through_floor if kind == "floor" else through_service)(deliveries)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.stdout.write(f"{pystream.__file__}\n")
    anyio.run(count, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
