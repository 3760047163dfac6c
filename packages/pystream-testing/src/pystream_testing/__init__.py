"""Tools for testing pystream services: `TestApp` runs the app that ships, in process.

Nothing is imported before it is asked for. `pystream_testing.pulsar` has a real server to
test against.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pystream_testing.app import TestApp as TestApp
    from pystream_testing.brokers import ConnectedBrokers as ConnectedBrokers
    from pystream_testing.brokers import TestBroker as TestBroker
    from pystream_testing.clock import VirtualClock as VirtualClock
    from pystream_testing.errors import NotQuiescentError as NotQuiescentError
    from pystream_testing.errors import UnknownDestinationWarning as UnknownDestinationWarning
    from pystream_testing.records import BatchCall as BatchCall
    from pystream_testing.records import Call as Call
    from pystream_testing.records import DecodeFailed as DecodeFailed
    from pystream_testing.records import Mixed as Mixed
    from pystream_testing.records import Published as Published
    from pystream_testing.records import Raised as Raised
    from pystream_testing.records import Records as Records
    from pystream_testing.records import SubscriberRecords as SubscriberRecords
    from pystream_testing.records import Unsettled as Unsettled

__all__ = [
    "BatchCall",
    "Call",
    "ConnectedBrokers",
    "DecodeFailed",
    "Mixed",
    "NotQuiescentError",
    "Published",
    "Raised",
    "Records",
    "SubscriberRecords",
    "TestApp",
    "TestBroker",
    "UnknownDestinationWarning",
    "Unsettled",
    "VirtualClock",
]

_HOMES = {
    "TestApp": "app",
    "ConnectedBrokers": "brokers",
    "TestBroker": "brokers",
    "VirtualClock": "clock",
    "NotQuiescentError": "errors",
    "UnknownDestinationWarning": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    return getattr(import_module(f"pystream_testing.{_HOMES.get(name, 'records')}"), name)
