"""What a handler decides about its delivery.

An outcome is a plain frozen value. A handler returns it, or code anywhere below the
handler raises it wrapped in `Settle`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from pystream.errors import ConfigurationError

__all__ = ["Outcome", "OutcomeKind", "Settle", "ack", "drop", "retry", "retry_after"]

OutcomeKind: TypeAlias = Literal["ack", "retry", "drop"]
"""What an outcome does: acknowledge, have it delivered again, or reject."""

Continuation: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"
"""A function and its arguments, called after the settlement."""


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """What happens to a delivery; made by `ack`, `retry`, `retry_after` and `drop`.

    Attributes:
        kind: `ack`, `retry` or `drop`.
        delay: The least time until the redelivery in seconds, 0 or more; none without a delay.
        continuation: A function and its arguments, to be called after the settlement, or none.
    """

    kind: OutcomeKind
    delay: float | None = None
    continuation: Continuation | None = None

    def and_after(self, fn: Callable[..., Any], /, *args: Any) -> Outcome:
        """The same outcome, and `fn(*args)` once the settlement was attempted.

        Args:
            fn: A plain function, called in line on the handler's loop, or a coroutine
                function, run as a task that the shutdown waits for. It is called at most
                once; what it raises is logged. A second call of `and_after` replaces the first.
            *args: Handed to `fn` as they are.
        """
        return replace(self, continuation=(fn, args))

    def __repr__(self) -> str:
        text = f"{self.kind}()" if self.delay is None else f"retry_after({self.delay:g})"
        if self.continuation is None:
            return text

        fn, args = self.continuation
        names = [getattr(fn, "__qualname__", repr(fn)), *map(repr, args)]
        return f"{text}.and_after({', '.join(names)})"


_ACK = Outcome("ack")
_RETRY = Outcome("retry")
_DROP = Outcome("drop")


def ack() -> Outcome:
    """Acknowledge: the message is done. What returning `None` means too."""
    return _ACK


def retry() -> Outcome:
    """Have the message delivered again, as soon as the broker will."""
    return _RETRY


def retry_after(delay: float | timedelta) -> Outcome:
    """Have the message delivered again, no sooner than `delay`.

    Args:
        delay: Seconds, or a timedelta; 0 or more.

    Raises:
        ConfigurationError: The delay is negative or not a finite number.
    """
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if not 0 <= seconds < float("inf"):
        raise ConfigurationError(f"retry_after({delay!r}): give a delay of 0 or more seconds")

    return Outcome("retry", seconds)


def drop() -> Outcome:
    """Reject the message: the broker will not send it again."""
    return _DROP


class Settle(Exception):
    """Raised below a handler to settle its delivery with `outcome`. Not an error.

    Attributes:
        outcome: What happens to the delivery.

    Raises:
        ConfigurationError: `outcome` is none: `Settle(retry)` for `Settle(retry())`.
    """

    def __init__(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Outcome):
            raise ConfigurationError(f"Settle({outcome!r}): give an outcome, such as retry()")

        self.outcome = outcome
        super().__init__(outcome)
