"""The conformance suite: the tests that a broker plugin inherits. Needs pytest.

A plugin's author describes the broker in a `Subject` and subclasses `ConformanceSuite`:

    class NatsSubject(Subject):
        capabilities = Capabilities(requeue=False)

        def broker(self) -> NatsBroker:
            return NatsBroker("nats://127.0.0.1:4222")

    class TestNats(ConformanceSuite):
        @pytest.fixture
        def subject(self) -> Subject:
            return NatsSubject()

`pystream_testing.conformance.brokers` holds brokers that are wrong on purpose, and honest odd ones.
"""

from __future__ import annotations

from pystream_testing.conformance._check import Check as Check
from pystream_testing.conformance._check import CheckGroup as CheckGroup
from pystream_testing.conformance._failure import ConformanceFailure as ConformanceFailure
from pystream_testing.conformance.delay import DelayChecks as DelayChecks
from pystream_testing.conformance.drain import DrainChecks as DrainChecks
from pystream_testing.conformance.flush import FlushChecks as FlushChecks
from pystream_testing.conformance.lifecycle import LifecycleChecks as LifecycleChecks
from pystream_testing.conformance.routing import RoutingChecks as RoutingChecks
from pystream_testing.conformance.settlement import SettlementChecks as SettlementChecks
from pystream_testing.conformance.shape import ShapeChecks as ShapeChecks
from pystream_testing.conformance.subject import IN_PROCESS as IN_PROCESS
from pystream_testing.conformance.subject import LIVE as LIVE
from pystream_testing.conformance.subject import Bounds as Bounds
from pystream_testing.conformance.subject import Capabilities as Capabilities
from pystream_testing.conformance.subject import HeaderKind as HeaderKind
from pystream_testing.conformance.subject import Subject as Subject
from pystream_testing.conformance.suite import ConformanceSuite as ConformanceSuite
from pystream_testing.conformance.suite import checks as checks

__all__ = [
    "IN_PROCESS",
    "LIVE",
    "Bounds",
    "Capabilities",
    "Check",
    "CheckGroup",
    "ConformanceFailure",
    "ConformanceSuite",
    "DelayChecks",
    "DrainChecks",
    "FlushChecks",
    "HeaderKind",
    "LifecycleChecks",
    "RoutingChecks",
    "SettlementChecks",
    "ShapeChecks",
    "Subject",
    "checks",
]

for _public in (Check, CheckGroup, ConformanceFailure):
    _public.__module__ = __name__  # tracebacks and references name the path that is promised
