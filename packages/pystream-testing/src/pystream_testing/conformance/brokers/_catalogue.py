"""What is said of a broker that exists to be tried: a fault, or an honest oddity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pystream.protocols import Broker

from pystream_testing.conformance.subject import IN_PROCESS, Bounds, Capabilities, Subject

__all__ = ["Fault", "Honest"]

_HURRIED = Bounds(construct=0.6, connect=1.0, shutdown=2.0, step=1.0, arrival=0.7)
"""For brokers that are expected to let a check wait in vain; a close of the memory broker may take 1 s."""

_EVERYTHING = Capabilities()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A broker that is wrong on purpose.

    Attributes:
        name: What it does wrong, in a few words with hyphens.
        rejected_by: The name of the check that is meant for it.
        because: A part of the sentence with which that check fails.
        broker: Makes it.
        capabilities: What it claims.
    """

    name: str
    rejected_by: str
    because: str
    broker: Callable[[], Broker]
    capabilities: Capabilities = _EVERYTHING

    def subject(self) -> Subject:
        """The subject to run checks with, in hurried bounds."""
        return _OddSubject(self.broker, self.capabilities, _HURRIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """A broker that is odd, says so, and passes.

    Attributes:
        name: What is odd about it, in a few words with hyphens.
        broker: Makes it.
        capabilities: What it claims.
    """

    name: str
    broker: Callable[[], Broker]
    capabilities: Capabilities = _EVERYTHING

    def subject(self) -> Subject:
        """The subject to run checks with."""
        return _OddSubject(self.broker, self.capabilities, IN_PROCESS)


class _OddSubject(Subject):
    def __init__(self, make: Callable[[], Broker], capabilities: Capabilities, bounds: Bounds) -> None:
        self._make = make
        self.capabilities = capabilities
        self._bounds = bounds

    @property
    def bounds(self) -> Bounds:
        return self._bounds

    def broker(self) -> Broker:
        return self._make()
