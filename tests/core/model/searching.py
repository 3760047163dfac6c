"""Runs so many random schedules on a form, good or broken."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from hypothesis import Phase, example, given, seed, settings

from tests.core.model.cases import CASES, Case
from tests.core.model.fault import Fault
from tests.core.model.idling import Backend, play
from tests.core.model.playing import play_schedule
from tests.core.model.schedules import Schedule
from tests.core.model.watching import Rejected

__all__ = ["ASYNCIO", "BACKENDS", "Run", "Verdict", "explore", "quiet_log", "reject"]

ASYNCIO: Backend = ("asyncio", {"use_uvloop": False})
BACKENDS: dict[str, Backend] = {
    "asyncio": ASYNCIO,
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}

_IMPATIENCE = 0.1  # seconds for threads of broken forms, of which many do nothing for ever
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # of threads: what they do not do takes seconds to see


@dataclass(frozen=True)
class Run:
    """What came of many schedules on a form.

    Attributes:
        examples: How many were played.
        seconds: How long that took.
        processor: How much of that was processor time of this process.
        bound: How many deliveries it may have in hand, with the largest n that was tried.
        most: How many it had.
    """

    examples: int
    seconds: float
    processor: float
    bound: int
    most: int


def explore(case: Case, backend: Backend, *, examples: int, number: int | None = None) -> Run:
    """Play random schedules on a real form, beginning with one that fills it.

    Args:
        case: The form.
        backend: The loop.
        examples: How many schedules.
        number: The seed, or none for what the profile says.

    Raises:
        Rejected: The form broke a promise.
    """
    played = most = 0
    started, worked = time.perf_counter(), time.process_time()

    @settings(max_examples=examples, deadline=None, phases=_PHASES if case.threads else list(Phase))
    @example(case.filling())
    @given(case.schedules())
    def holds(schedule: Schedule) -> None:
        nonlocal played, most
        played += 1
        most = max(most, play(backend, play_schedule, schedule, case).most)

    (holds if number is None else seed(number)(holds))()
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    return Run(played, seconds, processor, case.bound(case.sizes[-1]), most)


class _Enough(BaseException):
    """Ends a search at once: hypothesis would play what fails again, and a race need not come out alike."""


@dataclass
class Verdict:
    """What the model says of a broken form.

    Attributes:
        examples: How many schedules were played.
        first: After how many the check that is meant for the fault rejected it, or none.
        message: What that check said.
        rejections: How many each check rejected.
    """

    examples: int = 0
    first: int | None = None
    message: str = ""
    rejections: Counter[str] = field(default_factory=Counter)


def reject(fault: Fault, *, examples: int, number: int, enough: int = 1) -> Verdict:
    """Play random schedules on a broken form.

    Args:
        fault: The form.
        examples: How many schedules at most.
        number: The seed.
        enough: How often the check that is meant for the fault has to reject it.
    """
    case: Case = CASES[fault.case]
    verdict = Verdict()

    @seed(number)
    @settings(max_examples=examples, phases=[Phase.generate], database=None, deadline=None, report_multiple_bugs=False)
    @given(case.schedules())
    def tries(schedule: Schedule) -> None:
        verdict.examples += 1
        try:
            with fault.patch():
                play(ASYNCIO, play_schedule, schedule, case, fault.form, _IMPATIENCE)
        except Rejected as rejected:
            verdict.rejections[rejected.check] += 1
            if rejected.check != fault.check:
                return

            if verdict.first is None:
                verdict.first, verdict.message = verdict.examples, str(rejected)

            if verdict.rejections[fault.check] == enough:
                raise _Enough from None

    with suppress(_Enough):
        tries()

    return verdict


@contextmanager
def quiet_log() -> Iterator[None]:
    """Without the log of what the schedules have fail."""
    logger = logging.getLogger("pystream")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
