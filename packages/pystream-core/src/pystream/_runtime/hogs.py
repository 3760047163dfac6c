"""Handlers that hold the loop: found by a sample of the deliveries, told once per crossing.

While one step of a handler computes, or calls what blocks, nothing else of the service
runs: no other handler, no acknowledgement, no heartbeat of a client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from typing import Any, Final

EVERY: Final = 64
"""One delivery in so many is sampled."""

_SAMPLES: Final = 16  # before these nothing is told; from then on a new sample has this share of the average
_LIMIT: Final = 0.005  # seconds

logger = logging.getLogger("pystream.subscription")


class Hogs:
    """How long the handler steps of one subscription hold their loop.

    Args:
        subscription: Its name.
        timer: Seconds, of a clock that shows what a step takes.

    Attributes:
        timer: As given.
    """

    __slots__ = ("_average", "_over", "_samples", "_subscription", "timer")

    def __init__(self, subscription: str, *, timer: Callable[[], float] = time.perf_counter) -> None:
        self._subscription = subscription
        self._samples = 0
        self._average = 0.0
        self._over = False
        self.timer = timer

    def sampled(self, seconds: float) -> None:
        """Take note of the longest step of one delivery, and warn if the average has come to be too long."""
        self._samples = min(self._samples + 1, _SAMPLES)
        # A plain mean of the first samples; from then on the weight stays.
        self._average += (seconds - self._average) / self._samples
        if self._samples < _SAMPLES:
            return

        over = self._average > _LIMIT
        if over and not self._over:
            logger.warning(
                "%s: a handler step holds the loop for %.1f ms on average (above %g ms), and nothing else runs "
                "meanwhile; await what blocks, or give the subscription threads of its own with threads=n",
                self._subscription,
                self._average * 1000,
                _LIMIT * 1000,
            )

        self._over = over


class TimedSteps:
    """The steps of one delivery's coroutine, each of them timed; the longest is the sample.

    Args:
        steps: What a coroutine's `__await__` gives.
        hogs: Is told after the last step.
    """

    __slots__ = ("_hogs", "_longest", "_steps")

    def __init__(self, steps: Generator[Any, Any, None], hogs: Hogs) -> None:
        self._steps = steps
        self._hogs = hogs
        self._longest = 0.0

    def first(self, finished: object) -> Any:
        """The first step; `finished` if it was the last."""
        waits_for = self._take(next, self._steps, finished)
        if waits_for is finished:
            self._hogs.sampled(self._longest)

        return waits_for

    def send(self, value: Any) -> Any:
        """The next step."""
        return self._take(self._steps.send, value)

    def throw(self, error: BaseException) -> Any:
        """The next step, with what the loop throws into it."""
        return self._take(self._steps.throw, error)

    def _take(self, step: Callable[..., Any], *arguments: Any) -> Any:
        timer = self._hogs.timer
        began = timer()
        try:
            waits_for = step(*arguments)
        except BaseException:  # the end, too: it is a StopIteration
            self._hogs.sampled(max(self._longest, timer() - began))
            raise

        self._longest = max(self._longest, timer() - began)
        return waits_for
