"""`ConformanceSuite`: every group in one class, and the list of its checks."""

from __future__ import annotations

from pystream_testing.conformance._check import Check, checks_of
from pystream_testing.conformance.delay import DelayChecks
from pystream_testing.conformance.drain import DrainChecks
from pystream_testing.conformance.flush import FlushChecks
from pystream_testing.conformance.lifecycle import LifecycleChecks
from pystream_testing.conformance.routing import RoutingChecks
from pystream_testing.conformance.settlement import SettlementChecks
from pystream_testing.conformance.shape import ShapeChecks

__all__ = ["ConformanceSuite", "checks"]


class ConformanceSuite(
    DrainChecks, DelayChecks, FlushChecks, SettlementChecks, ShapeChecks, LifecycleChecks, RoutingChecks
):
    """All checks. A plugin's tests have a subclass of it whose fixture `subject` gives the broker to try.

    The checks run on the event loops of the fixture `anyio_backend`. One that does not apply
    to what the subject's `Capabilities` declare is skipped and says so; any other skip is a
    failure. No check can be overridden.
    """


def checks() -> tuple[Check, ...]:
    """Every check of `ConformanceSuite`, group after group, under its lasting name."""
    return tuple(checks_of(ConformanceSuite))
