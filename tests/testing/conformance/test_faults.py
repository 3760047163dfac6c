"""The suite can fail: every broker that is wrong on purpose is rejected by the check meant for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from pystream.memory import MemoryBroker
from pystream_testing.conformance import Check, ConformanceFailure, Subject, checks, report
from pystream_testing.conformance.brokers import FAULTS, HONEST, Fault, Honest

T = TypeVar("T")

_CHECKS = {check.name: check for check in checks()}


def _failure(check: Check, subject: Subject) -> str | None:
    try:
        anyio.run(check.run, subject)
    except ConformanceFailure as failure:
        return str(failure)

    return None


def _side_by_side(call: Callable[[T], Any], items: Iterable[T]) -> list[Any]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(call, items))


@pytest.fixture(scope="module")
def made() -> tuple[report.Report, list[str]]:
    """The report, and what it complains of."""
    complaints: list[str] = []
    return report.make_report(complaints.append), complaints


@pytest.mark.promise("SDK-102")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_rejected_by_its_check(fault: Fault, made: tuple[report.Report, list[str]]) -> None:
    """A broker that is wrong on purpose fails the check meant for it, with the sentence that says what is wrong."""
    rows = {row["name"]: row["rejected_by"] for row in made[0]["faults"]}

    assert rows[fault.name] == fault.rejected_by, made[1]


@pytest.mark.promise("SDK-104")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("honest", HONEST, ids=lambda honest: honest.name)
def test_honest_broker_passes(honest: Honest, made: tuple[report.Report, list[str]]) -> None:
    """A broker that is odd and says so passes every check that applies to what it claims."""
    assert honest.name in made[0]["honest"], made[1]


@pytest.mark.promise("SDK-102")
def test_hurried_bounds_reject_nobody() -> None:
    """In the short bounds that the faults are tried in, a broker without a fault passes."""
    sound = replace(FAULTS[0], broker=MemoryBroker)
    failures = _side_by_side(lambda check: _failure(check, sound.subject()), _CHECKS.values())

    assert [failure for failure in failures if failure] == []


@pytest.mark.promise("SDK-103")
def test_every_check_has_a_fault() -> None:
    """No check is without a broker that it rejects."""
    idle = set(_CHECKS) - {fault.rejected_by for fault in FAULTS}

    assert not idle, idle


@pytest.mark.promise("SDK-103")
def test_names_are_told_apart() -> None:
    """No two checks, faults or honest brokers have one name."""
    for named in (checks(), FAULTS, HONEST):
        names = [item.name for item in named]
        assert len(set(names)) == len(names)


def _in_order(fault: Fault, *, backwards: bool) -> str | None:
    """What the meant check says when all of its group run on one subject, one after the other."""
    subject = fault.subject()
    group = _CHECKS[fault.rejected_by].group
    own = [check for check in checks() if check.group is group]
    said = {}
    for check in reversed(own) if backwards else own:
        if check.skipped_for(fault.capabilities) is None:
            said[check.name] = _failure(check, subject)

    return said[fault.rejected_by]


@pytest.mark.promise("SDK-102")
@pytest.mark.timeout(180)
def test_no_order_hides_a_fault() -> None:
    """Whatever checks of the group ran before on the same subject, the check meant for a fault rejects it."""
    one_per_group = list({_CHECKS[fault.rejected_by].group: fault for fault in FAULTS}.values())
    runs = [(fault, backwards) for fault in one_per_group for backwards in (False, True)]
    said = _side_by_side(lambda run: _in_order(run[0], backwards=run[1]), runs)
    wrong = [
        (fault.name, answer) for (fault, _), answer in zip(runs, said, strict=True) if fault.because not in str(answer)
    ]

    assert not wrong


@pytest.mark.promise("SDK-109")
def test_report_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--json FILE` writes the names of checks, the faults with what rejected them, and the honest brokers; exit 0."""
    monkeypatch.setattr(report, "FAULTS", FAULTS[:1])
    monkeypatch.setattr(report, "HONEST", ())
    path = tmp_path / "report.json"

    assert report.main(["--json", str(path)]) == 0
    assert json.loads(path.read_text("utf-8")) == {
        "checks": list(_CHECKS),
        "faults": [{"name": FAULTS[0].name, "rejected_by": FAULTS[0].rejected_by}],
        "honest": [],
    }


@pytest.mark.promise("SDK-109")
def test_report_fails_with_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault that its check accepts, and an honest broker that is refused, make the exit code 1 and are named."""
    monkeypatch.setattr(report, "FAULTS", (replace(FAULTS[0], broker=MemoryBroker),))
    monkeypatch.setattr(report, "HONEST", ())
    path = tmp_path / "report.json"

    assert report.main(["--json", str(path)]) == 1
    assert json.loads(path.read_text("utf-8"))["faults"] == [{"name": FAULTS[0].name, "rejected_by": None}]
    assert "routing.all_arrive is meant for loses-publishes, and accepted it" in capsys.readouterr().err

    wrong = FAULTS[1]
    monkeypatch.setattr(report, "FAULTS", ())
    monkeypatch.setattr(report, "HONEST", (Honest(name="pretender", broker=wrong.broker),))
    monkeypatch.setattr(report, "checks", lambda: (_CHECKS[wrong.rejected_by],))

    assert report.main(["--json", str(path)]) == 1
    assert "routing.once refused the honest broker pretender: a message arrived twice" in capsys.readouterr().err
