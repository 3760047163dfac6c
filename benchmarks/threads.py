"""`threads.*`: what the hand-over to a dedicated thread costs, and what four of them gain.

The floor of each is the same handler in the default form. The gains need handlers that leave the
interpreter to the other threads, so theirs compute a digest, which releases the GIL. They do not
sleep: a sleep lasts longer than it was asked to, and needs no processor. Nothing can be taken
before the window is open: the default form would handle a whole streak while the app still starts,
which is a third of the messages where there are few.
"""

from __future__ import annotations

import time
from functools import cache
from hashlib import sha256

from benchmarks.consume import Subject, through_service
from benchmarks.payload import Order, typed
from benchmarks.stand_ins import ready

_THREADS = 4
_SAMPLE = bytes(1 << 20)
_SAMPLES = 20
_RELEASING = 2048  # below that many bytes hashlib keeps the GIL


@cache
def _bytes_per_second() -> float:
    """The best rate of the digest: a machine that is busy for a moment must not shorten the handlers."""
    return len(_SAMPLE) / min(_sample() for _ in range(_SAMPLES))


def _sample() -> float:
    started = time.perf_counter()
    sha256(_SAMPLE)
    return time.perf_counter() - started


def _doing_nothing(threads: int | None = None) -> Subject:
    async def subject(count: int) -> float:
        return await through_service(ready(count), typed, threads=threads)

    return subject


def _releasing(seconds: float, threads: int | None = None) -> Subject:
    """Through the runtime, with a handler that releases the GIL for that long on an idle processor."""

    async def subject(count: int) -> float:
        block = bytes(max(_RELEASING, round(_bytes_per_second() * seconds)))

        async def handler(order: Order) -> None:
            sha256(block)

        return await through_service(ready(count), handler, threads=threads)

    return subject


def _gain(seconds: float) -> tuple[Subject, Subject, None]:
    return _releasing(seconds), _releasing(seconds, _THREADS), None


GAINS: dict[str, int] = {"threads.gain10us": 4, "threads.gain100us": 10, "threads.gain1ms": 20}
"""The rows whose figure is a gain, and how many times fewer deliveries they get, since each takes long."""

ROWS: dict[str, tuple[Subject, Subject, None]] = {
    "threads.handover": (_doing_nothing(), _doing_nothing(threads=1), None),
    "threads.gain10us": _gain(10e-6),
    "threads.gain100us": _gain(100e-6),
    "threads.gain1ms": _gain(1e-3),
}
"""Name to the default form, the form with threads, and no target."""
