"""What came of the calls of a handler, each on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pystream import Headers, Outcome
from pystream.errors import ConfigurationError
from pystream.protocols import Delivery, Key

from pystream_testing._differences import shown

__all__ = ["ANY", "BatchCall", "Call", "CallOutcome", "DecodeFailed", "Mixed", "Raised", "Unsettled", "told"]


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY: Any = _Any()
"""Stands for whatever value there is, where an assertion is given none."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised.

    Attributes:
        error: What it raised.
        outcome: What became of the delivery by the failure policy; none if it was left unsettled.
    """

    error: BaseException
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class DecodeFailed:
    """The delivery could not be read, and the handler was not called.

    Attributes:
        error: What could not be read.
        outcome: What became of the delivery by the failure policy; none if it was left unsettled.
    """

    error: Exception
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The delivery was given back without a settlement, or is still in hand."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """The deliveries of one batch ended differently.

    Attributes:
        outcomes: What became of each, in order; none for one that was left unsettled.
    """

    outcomes: tuple[Outcome | None, ...]


CallOutcome: TypeAlias = Outcome | Raised | DecodeFailed | Mixed | Unsettled
"""What came of a call: an outcome that the handler decided, or why it decided none."""


class Call:
    """One run of a handler, or one delivery that could not be read.

    A `BatchCall` is one too.

    Attributes:
        subscription: The subscription's name.
        value: The payload the handler was called with; `ANY` if it was not called.
        error: What the handler raised, or why the delivery could not be read; none for neither.
        settlement_error: Why the settlement was not made; none if it was, or was not tried.
    """

    __slots__ = ("_decided", "_delivery", "error", "over", "settlement_error", "subscription", "value")

    def __init__(self, subscription: str, delivery: Delivery) -> None:
        self.subscription: str = subscription
        self.value: Any = ANY
        self.error: BaseException | None = None
        self.settlement_error: Exception | None = None
        self.over: bool = False
        self._delivery = delivery
        self._decided: Outcome | None = None

    def __repr__(self) -> str:
        what = f"unreadable {shown(self.payload)}" if self.value is ANY else shown(self.value)
        return f"{what} -> {told(self.outcome)}"

    @property
    def payload(self) -> bytes:
        """The body as it came."""
        return self.delivery.payload

    @property
    def headers(self) -> Headers:
        """The headers; raises `DecodeError` if they cannot be read."""
        return Headers(self.delivery.headers)

    @property
    def key(self) -> Key | None:
        """The message key, or none."""
        return self.delivery.key

    @property
    def destination(self) -> str:
        """The full name of the topic, queue or subject."""
        return self.delivery.destination

    @property
    def delivery(self) -> Delivery:
        """The broker's own object; it is settled already."""
        return self._delivery

    @property
    def deliveries(self) -> Sequence[Call]:
        """The call as a list of one; of a batch, what came of each delivery."""
        return [self]

    @property
    def settled(self) -> Outcome | None:
        """What became of the delivery, without its continuation; none if it was left unsettled."""
        return self._decided if self._decided is None else replace(self._decided, continuation=None)

    @property
    def outcome(self) -> CallOutcome:
        """What came of the call; an outcome is without its continuation."""
        if self.error is None:
            return self.settled or Unsettled()

        if self.value is ANY and isinstance(self.error, Exception):
            return DecodeFailed(self.error, self.settled)

        return Raised(self.error, self.settled)

    def decide(self, outcome: Outcome | None) -> None:
        """The run is over; called by the recorder."""
        self._decided = outcome
        self.over = True


class BatchCall(Call):
    """One run of a handler of batches.

    Its value is the list of payloads. `payload`, `headers`, `key`, `destination` and `delivery`
    are those of the only delivery; of a larger batch they raise `ConfigurationError`.
    """

    __slots__ = ("_deliveries",)

    def __init__(self, subscription: str, deliveries: Sequence[Call]) -> None:
        super().__init__(subscription, deliveries[0].delivery)
        self._deliveries = deliveries
        self.value: Any = [call.value for call in deliveries]

    def __repr__(self) -> str:
        return f"{shown(self.value)} -> {told(self.outcome)}"

    @property
    def size(self) -> int:
        """How many deliveries the handler was called with, 1 or more."""
        return len(self._deliveries)

    @property
    def deliveries(self) -> Sequence[Call]:
        """Each delivery as if it had come alone: its payload, headers, key, and what became of it."""
        return self._deliveries

    @property
    def delivery(self) -> Delivery:
        """The broker's own object; it is settled already."""
        if self.size == 1:
            return super().delivery

        raise ConfigurationError(f"this call of {self.subscription} got a batch of {self.size}; look at its deliveries")

    @property
    def settled(self) -> Outcome | None:
        """What became of all deliveries; none if they were left unsettled, or ended differently."""
        first = self._deliveries[0].settled
        return first if all(call.settled == first for call in self._deliveries) else None

    @property
    def outcome(self) -> CallOutcome:
        """What came of the call; `Mixed` where the handler returned and the deliveries ended differently."""
        if self.error is not None:
            return Raised(self.error, self.settled)

        outcomes = tuple(call.settled for call in self._deliveries)
        return Mixed(outcomes) if len(set(outcomes)) > 1 else self.settled or Unsettled()


def told(outcome: Any) -> str:
    """An outcome, or the class of an error, in words."""
    if isinstance(outcome, type):
        return outcome.__name__

    if isinstance(outcome, Unsettled):
        return "left unsettled"

    if isinstance(outcome, Mixed):
        return f"settled with {', '.join(told(item or Unsettled()) for item in outcome.outcomes)}"

    if isinstance(outcome, Raised | DecodeFailed):
        what = "raised" if isinstance(outcome, Raised) else "not decoded:"
        return f"{what} {outcome.error!r}, then {told(outcome.outcome or Unsettled())}"

    return repr(outcome)
