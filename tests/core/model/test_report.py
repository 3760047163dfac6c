"""The report of the long run: written from its figures alone, complete, and of the forms that are there."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest

from tests.core.model.cases import CASES
from tests.core.model.faults import FAULTS
from tests.core.model.report import JSON, MARKDOWN, Report, complaints, render


@pytest.fixture
def report() -> Report:
    """The committed one."""
    answer: Report = json.loads(JSON.read_text("utf-8"))
    return answer


@pytest.mark.promise("DISPATCH-42")
def test_the_page_is_that_of_the_figures(report: Report) -> None:
    """What is committed as a page says what the figures say."""
    assert MARKDOWN.read_text("utf-8") == render(report)


@pytest.mark.promise("DISPATCH-42")
def test_the_report_is_complete(report: Report) -> None:
    """Every form was played 5,000 times or more, every broken one was rejected, and memory stayed flat."""
    played = {row["form"]: row["examples"] for row in report["forms"] if row["loop"] == "asyncio"}

    assert played.keys() == CASES.keys()
    assert min(played.values()) >= 5000
    assert {row["fault"] for row in report["faults"]} == FAULTS.keys()
    assert {row["figures"][-1][0] for row in report["endurance"]} == {1_000_000}
    assert not complaints(report)


def _unreached(report: Report) -> None:
    report["forms"][0]["reached"] = 0


def _accepted(report: Report) -> None:
    report["faults"][0]["first"] = None


def _grown(report: Report) -> None:
    deliveries, blocks, resident = report["endurance"][0]["figures"][-1]
    report["endurance"][0]["figures"][-1] = (deliveries, blocks + deliveries, resident)


@pytest.mark.promise("DISPATCH-42")
@pytest.mark.parametrize("spoil", [_unreached, _accepted, _grown])
def test_what_must_not_be_is_complained_of(report: Report, spoil: Callable[[Report], None]) -> None:
    """A bound that was not reached, a broken form that was accepted, and memory that grows fail the long run."""
    spoiled = copy.deepcopy(report)
    spoil(spoiled)

    assert len(complaints(spoiled)) == 1
