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

__all__ = ["Outcome", "OutcomeKind", "Settle", "ack", "dead_letter", "drop", "retry", "retry_after"]

OutcomeKind: TypeAlias = Literal["ack", "retry", "drop", "dead_letter"]
"""What an outcome does: acknowledge, have it delivered again, reject, or send to the dead letters."""

Continuation: TypeAlias = "tuple[Callable[..., Any], tuple[Any, ...]]"
"""A function and its arguments, called after the settlement."""


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """What happens to a delivery; made by `ack`, `retry`, `retry_after`, `drop` and `dead_letter`.

    Attributes:
        kind: `ack`, `retry`, `drop` or `dead_letter`.
        delay: The least time until the redelivery in seconds, 0 or more; none without a delay.
        continuation: A function and its arguments, to be called after the settlement, or none.
        reason: Why it is a dead letter; none for the other kinds.
    """

    kind: OutcomeKind
    delay: float | None = None
    continuation: Continuation | None = None
    reason: str | None = None

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
        text = self._call()
        if self.continuation is None:
            return text

        fn, args = self.continuation
        names = [getattr(fn, "__qualname__", repr(fn)), *map(repr, args)]
        return f"{text}.and_after({', '.join(names)})"

    def _call(self) -> str:
        if self.kind == "dead_letter":
            return f"dead_letter({self.reason!r})"

        return f"{self.kind}()" if self.delay is None else f"retry_after({self.delay:g})"


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


def dead_letter(reason: str) -> Outcome:
    """Publish the message to the declared dead-letter destination, and acknowledge it.

    Where the mount declares no `dead_letter=`, the message is retried with backoff, with an ERROR.

    Args:
        reason: Why, in a few words; travels with the message in the header
            `x-pystream-dead-letter-reason`.

    Raises:
        ConfigurationError: The reason is no text, or an empty one.
    """
    if not isinstance(reason, str) or not reason:
        raise ConfigurationError(f"dead_letter({reason!r}): give a reason, such as dead_letter('unknown currency')")

    return Outcome("dead_letter", reason=reason)


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
