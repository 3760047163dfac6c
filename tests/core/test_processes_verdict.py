"""How signals are weighed against the ends of processes, without processes."""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGINT, SIGKILL, SIGTERM
from typing import cast

import pytest
from pystream._processes.spawned import Ended, Spawned
from pystream._processes.verdict import Verdict
from pystream.errors import ServiceAborted


@dataclass
class Stub:
    """What a verdict reads of a process."""

    number: int = 1
    pid: int = 11
    bounds: tuple[float, float] | None = (1.0, 1.0)
    reason: str | None = None
    killed: str | None = None


def ended(code: int, at: float, *, serving: bool = True, number: int = 1) -> Ended:
    """The end of a process."""
    stub = Stub(number=number, bounds=(1.0, 1.0) if serving else None)
    return Ended(cast("Spawned", stub), code, at)


def told(verdict: Verdict) -> str | None:
    """What the run would say."""
    failure = verdict.failure()
    return None if failure is None else str(failure)


KILLED = "shop:app failed (process): process 1 of 3 (pid 11) was killed by SIGKILL"
LEFT = "shop:app failed (process): process 1 of 3 (pid 11) ended with exit code"


@pytest.fixture
def verdict() -> Verdict:
    """Of a service of three processes."""
    return Verdict("shop:app", 3)


@pytest.mark.promise("CLI-12", "CLI-13")
def test_a_second_request_is_half_a_second_later(verdict: Verdict) -> None:
    """Signals within half a second of the first are one request; the next one aborts, and its number stays."""
    asked = [verdict.signalled(SIGTERM, at) for at in (10, 10.1, 10.49)]
    asked += [verdict.signalled(SIGINT, 10.5), verdict.signalled(SIGTERM, 20)]

    assert asked == ["stop", None, None, "abort", "abort"]
    assert isinstance(verdict.failure(), ServiceAborted)
    assert told(verdict) == "shop:app was aborted by a second signal (SIGINT)"


@pytest.mark.promise("CLI-11", "CLI-13")
@pytest.mark.parametrize(
    ("code", "serving", "signals", "clean"),
    [
        (0, True, 1, True),
        (-SIGTERM, False, 1, True),
        (130, False, 1, True),
        (-SIGTERM, True, 1, False),
        (143, True, 1, False),
        (143, True, 2, True),
        (1, True, 2, True),
        (1, False, 1, False),
        (-SIGKILL, False, 1, False),
    ],
)
def test_ends_after_a_signal(verdict: Verdict, code: int, serving: bool, signals: int, clean: bool) -> None:
    """After one signal a process ends with 0, or by it before it serves; after two, however it can."""
    for number in range(signals):
        verdict.signalled(SIGTERM, 10 + number)

    verdict.ended(ended(code, 12, serving=serving))
    assert (told(verdict) is None or isinstance(verdict.failure(), ServiceAborted)) is clean
    assert not verdict.in_doubt(12.5)


@pytest.mark.promise("CLI-16")
@pytest.mark.parametrize(("code", "serving"), [(0, True), (-SIGTERM, False), (130, False)])
@pytest.mark.parametrize(("late", "clean"), [(0.49, True), (0.5, False)])
def test_a_signal_explains_an_end_of_half_a_second_ago(
    verdict: Verdict, code: int, serving: bool, late: float, clean: bool
) -> None:
    """An end that a signal to the group may have caused is in doubt for half a second, and then a failure."""
    verdict.ended(ended(code, 10, serving=serving))
    assert verdict.stopping
    assert verdict.in_doubt(10.49)
    assert not verdict.in_doubt(10.5)

    verdict.signalled(SIGTERM, 10 + late)
    assert (told(verdict) is None) is clean


@pytest.mark.promise("CLI-16")
def test_a_second_signal_explains_an_aborted_process(verdict: Verdict) -> None:
    """A process may be aborted by a signal to the group before the supervising process sees it."""
    verdict.signalled(SIGTERM, 10)
    verdict.ended(ended(143, 20))
    verdict.signalled(SIGTERM, 20.1)

    assert isinstance(verdict.failure(), ServiceAborted)


@pytest.mark.promise("CLI-14")
@pytest.mark.parametrize("code", [1, -SIGKILL])
def test_no_signal_explains_a_failure(verdict: Verdict, code: int) -> None:
    """A process that failed or was killed is not in doubt, and the first one is named, whatever follows."""
    verdict.ended(ended(code, 10))
    verdict.signalled(SIGTERM, 10.1)
    verdict.ended(ended(0, 10.2, number=2))
    verdict.ended(ended(1, 10.3, number=3))
    verdict.signalled(SIGTERM, 11)

    assert not verdict.in_doubt(10)
    assert told(verdict) == (KILLED if code < 0 else f"{LEFT} 1")


@pytest.mark.promise("CLI-16")
def test_an_end_by_itself_is_a_failure(verdict: Verdict) -> None:
    """Exit code 0 is no clean stop if nobody has asked for one."""
    verdict.ended(ended(0, 10))
    verdict.ended(ended(0, 10.2, number=2))

    assert told(verdict) == f"{LEFT} 0"
