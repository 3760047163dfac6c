"""What a plugin's author subclasses: nothing can be left out without a word."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pystream.memory import MemoryBroker
from pystream_testing.conformance import (
    IN_PROCESS,
    LIVE,
    Bounds,
    Capabilities,
    ConformanceFailure,
    ConformanceSuite,
    RoutingChecks,
    Subject,
    checks,
)

pytest_plugins = ["pytester"]


class _Subject(Subject):
    def __init__(self, capabilities: Capabilities = Capabilities()) -> None:  # noqa: B008  # a frozen value
        self.capabilities = capabilities

    def broker(self) -> MemoryBroker:
        return MemoryBroker()


@pytest.mark.promise("SDK-105")
def test_a_check_cannot_be_overridden() -> None:
    """A subclass that defines a test of an inherited name is refused, so that no check is lost."""
    with pytest.raises(TypeError, match=r"overrides test_routing_once; declare in the subject's capabilities"):
        type("TestMine", (RoutingChecks,), {"test_routing_once": None})


@pytest.mark.promise("SDK-105")
def test_groups_do_not_hide_each_other() -> None:
    """The suite inherits the very method of every check of every group."""
    for check in checks():
        found = [name for name, method in vars(check.group).items() if method is check.method]
        assert [getattr(ConformanceSuite, name) for name in found] == [check.method]


@pytest.mark.promise("SDK-106")
@pytest.mark.anyio
async def test_a_declared_skip_says_what_was_declared() -> None:
    """A check that needs what is not claimed is skipped, with the capability in the reason."""
    once = next(check for check in checks() if check.name == "routing.once")
    with pytest.raises(pytest.skip.Exception, match="declared: repeats"):
        await once.run(_Subject(Capabilities(repeats=True)))

    requeue = next(check for check in checks() if check.name == "settlement.requeue_returns")
    with pytest.raises(pytest.skip.Exception, match="declared: not capable of requeue"):
        await requeue.run(_Subject(Capabilities(requeue=False)))


class _Skipping(Subject):
    def broker(self) -> MemoryBroker:
        pytest.skip("the server is not there today")


@pytest.mark.promise("SDK-106")
@pytest.mark.anyio
async def test_an_undeclared_skip_is_a_failure() -> None:
    """A skip that no capability declares, raised while a check runs, fails the check."""
    # Both are caught: a skip that came through would skip this very test.
    with pytest.raises((ConformanceFailure, pytest.skip.Exception)) as caught:
        await checks()[0].run(_Skipping())

    assert caught.type is ConformanceFailure
    assert "which nothing declares: the server is not there today" in str(caught.value)


@pytest.mark.promise("SDK-107")
def test_names_are_stable() -> None:
    """The names of the checks are those that are listed beside this test."""
    listed = Path(__file__).with_name("checks.txt").read_text("utf-8").split()

    assert [check.name for check in checks()] == listed
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+", name) for name in listed)
    assert all(check.promise.endswith(".") for check in checks())


_PLUGIN_TESTS = """
import pytest
from pystream.memory import MemoryBroker
from pystream_testing.conformance import Capabilities, {group}, Subject

class MySubject(Subject):
    capabilities = Capabilities(repeats=True)

    def broker(self):
        return MemoryBroker("mine")

class TestMine({group}):
    @pytest.fixture
    def subject(self):
        return MySubject()
"""


@pytest.mark.promise("SDK-108")
def test_a_plugin_inherits_the_tests(pytester: pytest.Pytester) -> None:
    """A subject and a subclass run the checks on the author's loops; the imported classes alone collect nothing."""
    pytester.makepyfile(
        test_mine=_PLUGIN_TESTS.format(group="RoutingChecks"),
        test_nothing="from pystream_testing.conformance import *",
    )
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef anyio_backend():\n    return 'trio'\n")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error")
    result.assert_outcomes(passed=6, skipped=1)


@pytest.mark.promise("SDK-112")
def test_bounds() -> None:
    """The bounds are those that a plugin's author is told: longer waits, live, for what comes and for what does not."""
    assert Bounds() == IN_PROCESS
    assert (LIVE.construct, LIVE.connect, LIVE.shutdown, LIVE.step) == (1.0, 10.0, 10.0, 2.0)
    assert (LIVE.arrival, LIVE.silence, IN_PROCESS.silence) == (10.0, 0.5, 0.1)
    assert replace(LIVE, arrival=IN_PROCESS.arrival, silence=0.1) == IN_PROCESS
    subject = _Subject()
    assert subject.bounds == IN_PROCESS
    subject.live = True
    assert subject.bounds == LIVE


@pytest.mark.promise("SDK-108")
def test_names_are_fresh() -> None:
    """No two destinations that a subject names are the same."""
    names = [subject.destination("orders") for subject in (_Subject(), _Subject()) for _ in range(50)]

    assert len(set(names)) == 100
    assert all(name.startswith("orders-") for name in names)
