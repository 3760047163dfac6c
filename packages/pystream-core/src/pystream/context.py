"""What a handler may see of its delivery besides the payload: `Context` and `State`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar, get_args

from pystream.errors import ConfigurationError
from pystream.headers import Headers, find_header
from pystream.outcomes import Outcome, OutcomeKind

if TYPE_CHECKING:
    from pystream.protocols import Delivery, Key

__all__ = ["RETRY_COUNT_HEADER", "AfterSettle", "BatchContext", "Context", "State", "attempt_of"]

RETRY_COUNT_HEADER = "x-pystream-retry-count"
"""Counts the copies of a message that a service has published for another attempt."""

_DIGITS = 10
_KINDS: Final[tuple[str, ...]] = get_args(OutcomeKind)
T = TypeVar("T")


class StateMarker:
    """Marks a parameter as the app's state; what `State[T]` puts into the annotation."""


State: TypeAlias = Annotated[T, StateMarker]
"""A parameter `State[T]` receives what `PyStream(state=...)` opened, as it is.

Under concurrent forms every handler shares the one object.
"""


def attempt_of(delivery: Delivery) -> int:
    """Which attempt this delivery is, from 1: by the broker's count, else by the retry header."""
    count = delivery.delivery_count
    if count is not None:
        return count

    value = find_header(delivery.headers, RETRY_COUNT_HEADER)
    # The length: a number that no service has counted to is malformed, and slow to read.
    return int(value) + 1 if value is not None and value.isdigit() and len(value) < _DIGITS else 1


After: TypeAlias = "tuple[OutcomeKind | None, Callable[..., Any], tuple[Any, ...]]"
"""The kind of outcome, or none for all; a function and its arguments."""


class AfterSettle:
    """Where a handler or a layer leaves what is to be called after the settlement.

    Everything left here is kept, and called in order once the settlement was attempted, after
    the outcome's own continuation: at most once, never for a delivery that is left unsettled.
    Plain functions are called in line on the handler's loop; coroutine functions run as tasks
    that the shutdown waits for. What they raise is logged.
    """

    __slots__ = ("_afters", "_decided", "_unreadable")

    def __init__(self) -> None:
        self._afters: list[After] | None = None
        # What the chain of layers notes: the outcome that stands, and the error of the decoding.
        self._decided: Outcome | None = None
        self._unreadable: Exception | None = None

    def after_ack(self, fn: Callable[..., Any], /, *args: Any) -> None:
        """Call `fn(*args)` if the outcome is an acknowledgement."""
        self._leave("ack", fn, args)

    def after(self, kind: OutcomeKind, fn: Callable[..., Any], /, *args: Any) -> None:
        """Call `fn(*args)` if the outcome is of this kind.

        Raises:
            ConfigurationError: There is no such kind.
        """
        if kind not in _KINDS:
            raise ConfigurationError(f"after({kind!r}): there is no such outcome; give {', '.join(_KINDS)}")

        self._leave(kind, fn, args)

    def after_settle(self, fn: Callable[..., Any], /, *args: Any) -> None:
        """Call `fn(*args)` whatever the outcome is."""
        self._leave(None, fn, args)

    def _leave(self, kind: OutcomeKind | None, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self._afters is None:
            self._afters = []

        self._afters.append((kind, fn, args))


class Context(AfterSettle):
    """One delivery, as its handler may look at it. Valid while the handler runs.

    Attributes:
        subscription: The name of the subscription.
    """

    __slots__ = ("_delivery", "_headers", "_reruns", "subscription")

    def __init__(self, delivery: Delivery, subscription: str, reruns: int = 0) -> None:
        self._delivery = delivery
        self.subscription: str = subscription
        self._reruns = reruns
        self._headers: Headers | None = None
        # As `AfterSettle` does; a call up there is a tenth of what the whole context costs.
        self._afters = self._decided = self._unreadable = None

    @property
    def id(self) -> str:
        """The broker's identity of the message."""
        return self._delivery.id

    @property
    def destination(self) -> str:
        """The full name of the topic, queue or subject the message was published to."""
        return self._delivery.destination

    @property
    def payload(self) -> bytes:
        """The body as it came."""
        return self._delivery.payload

    @property
    def key(self) -> Key | None:
        """The message key, or none."""
        return self._delivery.key

    @property
    def headers(self) -> Headers:
        """A working copy of the headers.

        What a layer changes in it is seen by later layers and the handler, and by nobody else:
        copies for another attempt carry the original headers.

        Raises:
            DecodeError: The broker's headers cannot be read.
        """
        if self._headers is None:
            self._headers = Headers(self._delivery.headers)

        return self._headers

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1.

        By the broker's count, else by the header `x-pystream-retry-count`; plus the runs in
        place so far. Whether the count survives a restart is the broker's affair.
        """
        return attempt_of(self._delivery) + self._reruns

    def __repr__(self) -> str:
        return f"Context(subscription={self.subscription!r}, id={self.id!r}, attempt={self.attempt})"


class BatchContext(AfterSettle):
    """One batch, as its handler may look at it. Valid while the handler runs.

    A layer sees every delivery of the batch; once they are decoded, and in the handler, those
    that could not be read are gone, and `contexts` stands in the order of the payload's list.

    What is left here by `after_settle`, `after_ack` and `after` is called once, after all of
    the batch was settled: `after_ack` and `after` if at least one delivery was settled so. What
    is left in one of the `contexts` is called after that delivery's own settlement.

    Attributes:
        subscription: The name of the subscription.
    """

    __slots__ = ("_contexts", "_deliveries", "_reruns", "subscription")

    def __init__(self, deliveries: Sequence[Delivery], subscription: str, reruns: int = 0) -> None:
        super().__init__()
        self._deliveries = deliveries
        self.subscription: str = subscription
        self._reruns = reruns
        self._contexts: tuple[Context, ...] | None = None

    @property
    def size(self) -> int:
        """How many deliveries there are, 1 or more."""
        return len(self._deliveries)

    @property
    def contexts(self) -> tuple[Context, ...]:
        """The context of each delivery, with its id, headers, key and attempt."""
        if self._contexts is None:
            self._contexts = tuple(Context(item, self.subscription, self._reruns) for item in self._deliveries)

        return self._contexts

    def _context_of(self, delivery: Delivery) -> Context | None:
        """The context of one delivery, if anybody has looked at the contexts."""
        return next((item for item in self._contexts or () if item._delivery is delivery), None)

    def _narrow(self, deliveries: Sequence[Delivery]) -> None:
        """Keep these deliveries alone."""
        if self._contexts is not None:
            kept = {id(item) for item in deliveries}
            self._contexts = tuple(item for item in self._contexts if id(item._delivery) in kept)

        self._deliveries = deliveries

    def __repr__(self) -> str:
        return f"BatchContext(subscription={self.subscription!r}, size={self.size})"
