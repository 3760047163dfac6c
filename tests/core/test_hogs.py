"""Handlers that hold the loop: which deliveries are sampled, what is averaged, and when a warning is due."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pystream._runtime.hogs import Hogs
from pystream._runtime.starter import Start, in_fresh_context

LIMIT = 0.005
EVERY, SAMPLES = 64, 16


class Timer:
    """A clock that stands still until a handler step takes its time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Samples(Hogs):
    """Keeps what it is told."""

    def __init__(self, timer: Timer) -> None:
        super().__init__("orders", timer=timer)
        self.seen: list[float] = []

    def sampled(self, seconds: float) -> None:
        self.seen.append(round(seconds, 9))
        super().sampled(seconds)


def starting(process: Callable[[Any], Coroutine[Any, Any, None]], hogs: Hogs | None) -> Start[Any]:
    return in_fresh_context(process, contextvars.copy_context(), hogs)


def fed(*samples: float) -> list[int]:
    """Which of the samples were answered by a warning, from 1."""
    hogs = Hogs("orders")
    told: list[int] = []
    with _warnings() as lines:
        for number, seconds in enumerate(samples, 1):
            hogs.sampled(seconds)
            if lines:
                told.append(number)
                lines.clear()

    return told


@contextmanager
def _warnings() -> Iterator[list[str]]:
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert record.levelno == logging.WARNING
            lines.append(record.getMessage())

    handler, logger = Handler(), logging.getLogger("pystream.subscription")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


@pytest.mark.promise("DISPATCH-30")
@pytest.mark.parametrize(("deliveries", "samples"), [(1, 0), (63, 0), (64, 1), (127, 1), (128, 2), (640, 10)])
def test_one_delivery_in_64_is_sampled(deliveries: int, samples: int) -> None:
    """The 64th delivery is the first that is timed, the 128th the second."""
    hogs = Samples(Timer())

    async def process(delivery: int) -> None: ...

    start = starting(process, hogs)
    for number in range(deliveries):
        assert start(number) is None

    assert len(hogs.seen) == samples


@pytest.mark.promise("DISPATCH-30")
@pytest.mark.anyio
async def test_the_sample_is_the_longest_step() -> None:
    """Of all steps of a delivery the longest counts; what it waits for does not."""
    timer = Timer()
    hogs = Samples(timer)

    async def process(steps: list[float]) -> None:
        for seconds in steps[:-1]:
            timer.now += seconds
            await anyio.lowlevel.checkpoint()

        timer.now += steps[-1]

    async def deliver(steps: list[float]) -> None:
        rest = start(steps)
        if rest is not None:
            timer.now += 10  # others run meanwhile
            await rest

    start = starting(process, hogs)
    for steps in ([0.003], [0.001, 0.004, 0.002], [0.006, 0.001], [0.001, 0.007], [0.008, 0.001, 0.002]):
        for _ in range(EVERY - 1):
            await deliver([50.0, 50.0])

        await deliver(steps)

    assert hogs.seen == [0.003, 0.004, 0.006, 0.007, 0.008]


@pytest.mark.promise("DISPATCH-30")
@pytest.mark.anyio
async def test_a_step_that_raises_or_is_cancelled_counts() -> None:
    """What ends a delivery ends the sample: an error at once, an error later, a cancellation."""
    timer = Timer()
    hogs = Samples(timer)

    async def process(fails_at: str) -> None:
        timer.now += 0.002
        if fails_at == "start":
            raise ValueError

        try:
            await (anyio.sleep_forever() if fails_at == "cancel" else anyio.lowlevel.checkpoint())
        finally:
            timer.now += 0.004

        raise ValueError

    async def quick(fails_at: str) -> None: ...

    for fails_at in ("start", "later", "cancel"):
        start = starting(lambda given: (process if given else quick)(given), hogs)
        for _ in range(EVERY - 1):
            assert start("") is None

        with anyio.move_on_after(0 if fails_at == "cancel" else 60) as scope:
            with pytest.raises(ValueError, match=r"^$"):
                await _to_the_end(start, fails_at)

        assert scope.cancelled_caught == (fails_at == "cancel")

    assert hogs.seen == [0.002, 0.004, 0.004]


async def _to_the_end(start: Start[Any], delivery: object) -> None:
    rest = start(delivery)
    assert rest is not None
    await rest


@pytest.mark.promise("DISPATCH-30")
@pytest.mark.anyio
async def test_a_sampled_delivery_runs_like_any_other() -> None:
    """The timed delivery has its own context, sees cancellations, and its errors come out."""
    variable = contextvars.ContextVar("variable", default="nothing")
    seen: list[str] = []

    async def process(number: int) -> None:
        variable.set(str(number))
        await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0):
            await anyio.sleep_forever()

        seen.append(variable.get())

    start = starting(process, Samples(Timer()))
    for number in range(1, 130):
        await _to_the_end(start, number)

    assert seen == [str(number) for number in range(1, 130)]
    assert variable.get() == "nothing"


@pytest.mark.promise("DISPATCH-33")
def test_without_hogs_nothing_is_timed() -> None:
    """A loop that nobody shares is started without a count: the function has no part of it."""

    async def process(delivery: int) -> None: ...

    plain, sampling = starting(process, None), starting(process, Hogs("orders"))
    assert "left" not in getattr(plain, "__code__").co_freevars  # noqa: B009 - a function to us, a callable to mypy
    assert "left" in getattr(sampling, "__code__").co_freevars  # noqa: B009 - as above
    assert [plain(number) for number in range(EVERY)] == [None] * EVERY


@pytest.mark.promise("DISPATCH-31")
@pytest.mark.parametrize(("samples", "told"), [(15, []), (16, [16]), (17, [16]), (100, [16])])
def test_the_first_warning_waits_for_16_samples(samples: int, told: list[int]) -> None:
    """However long the steps, 15 samples say nothing; the sixteenth does, and it is told once."""
    assert fed(*[1.0] * samples) == told


@pytest.mark.promise("DISPATCH-31")
@pytest.mark.parametrize(("seconds", "told"), [(LIMIT, []), (0.004999, []), (0.005001, [16])])
def test_exactly_5_ms_is_not_too_long(seconds: float, told: list[int]) -> None:
    """The average has to be above 5 ms."""
    assert fed(*[seconds] * 40) == told


@pytest.mark.promise("DISPATCH-31")
@pytest.mark.parametrize(("last", "told"), [(0.0801, [16]), (0.0799, [])])
def test_the_first_16_samples_count_alike(last: float, told: list[int]) -> None:
    """The first average is the plain mean: one of 16 samples has to be above 16 times the limit alone."""
    assert fed(*[0.0] * 15, last) == told
    assert fed(last, *[0.0] * 15) == told


@pytest.mark.promise("DISPATCH-31")
@pytest.mark.parametrize(("last", "told"), [(0.0801, [40]), (0.0799, [])])
def test_a_later_sample_has_a_weight_of_a_sixteenth(last: float, told: list[int]) -> None:
    """After many short samples one long one counts by 1/16, neither more nor less."""
    assert fed(*[0.0] * 39, last) == told


@pytest.mark.promise("DISPATCH-32")
def test_each_crossing_is_told_once() -> None:
    """Above the limit nothing is repeated; after the average has come down, the next crossing is told."""
    high, low = [0.010] * 30, [0.0] * 30
    assert fed(*high, *low, *high, *low, *high) == [16, 69, 129]


@pytest.mark.promise("DISPATCH-32")
def test_an_average_that_falls_to_the_limit_has_come_down() -> None:
    """At 5 ms the crossing is over, and the next sample above it is one."""
    hogs = Hogs("orders")
    with _warnings() as lines:
        for seconds in [LIMIT] * 16 + [0.006]:
            hogs.sampled(seconds)

        assert len(lines) == 1
        hogs._average = LIMIT
        hogs.sampled(LIMIT)
        hogs.sampled(0.006)

    assert len(lines) == 2


@pytest.mark.promise("DISPATCH-32")
def test_the_warning_names_subscription_average_and_way_out() -> None:
    """One WARNING with the subscription, the average and `threads`."""
    hogs = Hogs("eu:orders")
    with _warnings() as lines:
        for _ in range(16):
            hogs.sampled(0.01234)

    assert lines == [
        "eu:orders: a handler step holds the loop for 12.3 ms on average (above 5 ms), and nothing else runs "
        "meanwhile; await what blocks, or give the subscription threads of its own with threads=n"
    ]


@pytest.mark.promise("DISPATCH-31", "DISPATCH-32")
@pytest.mark.parametrize(("deliveries", "warnings"), [(1023, 0), (1024, 1), (2048, 1)])
def test_a_handler_that_holds_the_loop_is_told_after_1024_deliveries(deliveries: int, warnings: int) -> None:
    """Sixteen samples of one in 64: the 1024th delivery brings the warning."""
    timer = Timer()

    async def process(delivery: int) -> None:
        timer.now += 0.006

    start = starting(process, Hogs("orders", timer=timer))
    with _warnings() as lines:
        for number in range(deliveries):
            start(number)

    assert len(lines) == warnings
