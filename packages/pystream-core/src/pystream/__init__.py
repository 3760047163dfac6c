"""pystream: typed handlers over message brokers, with exact settlement.

What a service needs is here; `pystream.protocols` is what a broker plugin needs, and
`pystream.memory` the broker that needs no server.
"""

from __future__ import annotations

from pystream.app import PyStream, RunningApp
from pystream.context import BatchContext, Context, State
from pystream.errors import PyStreamError, ServiceAborted, ServiceFailed
from pystream.failures import FAIL_FAST, Backoff, FailurePolicy
from pystream.headers import Headers
from pystream.health import Health, ServiceState
from pystream.hookspecs import ServiceEvent, Settled, hookimpl
from pystream.main_runtime import MainRuntime
from pystream.outcomes import Outcome, Settle, ack, dead_letter, drop, retry, retry_after
from pystream.parameters import Header
from pystream.plugins import broker
from pystream.processes import run
from pystream.publishing import Out
from pystream.router import Router
from pystream.subscriber import by_key, mount, subscriber

__all__ = [
    "FAIL_FAST",
    "Backoff",
    "BatchContext",
    "Context",
    "FailurePolicy",
    "Header",
    "Headers",
    "Health",
    "MainRuntime",
    "Out",
    "Outcome",
    "PyStream",
    "PyStreamError",
    "Router",
    "RunningApp",
    "ServiceAborted",
    "ServiceEvent",
    "ServiceFailed",
    "ServiceState",
    "Settle",
    "Settled",
    "State",
    "ack",
    "broker",
    "by_key",
    "dead_letter",
    "drop",
    "hookimpl",
    "mount",
    "retry",
    "retry_after",
    "run",
    "subscriber",
]
