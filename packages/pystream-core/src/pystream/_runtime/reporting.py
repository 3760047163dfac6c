"""What one subscription logs: never a payload, and not the same ERROR a thousand times."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from pystream.protocols import Delivery

_QUIET_SECONDS = 1.0

logger = logging.getLogger("pystream.subscription")


@dataclass(slots=True)
class _Repeated:
    last: float
    kept_back: int = 0


@dataclass(slots=True)
class Reporter:
    """The log of one subscription.

    At most one line a second and kind is written; the next one says how many were kept back.
    Its methods may be called on any thread.

    Attributes:
        subscription: Named in every line.
        now: The present time in seconds.
        settlement_failures: How many settlements have failed so far.
    """

    subscription: str
    now: Callable[[], float]
    settlement_failures: int = 0
    _kinds: dict[str, _Repeated] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def handler_failed(self, delivery: Delivery, error: BaseException, attempt: int, consequence: object) -> None:
        """A handler has raised."""
        self._write(
            logging.ERROR,
            "handler failed",
            f"message {delivery.id}, attempt {attempt}: {type(error).__name__}; {consequence!r}",
            error,
        )

    def unreadable(self, delivery: Delivery, error: Exception, consequence: object) -> None:
        """A delivery could not be read."""
        self._write(logging.ERROR, "unreadable delivery", f"message {delivery.id}: {error}; {consequence!r}")

    def reply_failed(self, delivery: Delivery, error: Exception) -> None:
        """A reply could not be published; the delivery is retried."""
        self._write(logging.ERROR, "reply not published", f"message {delivery.id}: {error}; it will be retried")

    def copy_failed(self, delivery: Delivery, what: str, error: BaseException, delay: float) -> None:
        """A copy or a dead letter could not be published; the original is kept."""
        text = f"message {delivery.id}: {type(error).__name__}: {error}; another try in {delay:.3g} s"
        self._write(logging.ERROR, f"{what} not published", text)

    def no_dead_letter(self, delivery: Delivery, asked: object, consequence: object) -> None:
        """A dead letter was asked for where none is declared."""
        text = f"message {delivery.id}: {asked!r}, and the mount declares no dead_letter=; {consequence!r}"
        self._write(logging.ERROR, "no dead letter", text)

    def spent(self, delivery: Delivery, attempt: int, max_attempts: int | None) -> None:
        """A delivery is rejected because no attempt is left."""
        text = (
            f"message {delivery.id} is rejected at attempt {attempt}, since max_attempts={max_attempts} "
            "and no dead_letter= is declared"
        )
        self._write(logging.WARNING, "no attempt left", text)

    def outcomes_do_not_fit(self, found: int, size: int) -> None:
        """A handler of batches has returned too few outcomes, or too many."""
        rest = f"the last {size - found} are retried" if found < size else f"the last {found - size} are ignored"
        text = f"the handler returned {found} for {size} deliveries; {rest}"
        self._write(logging.ERROR, "outcomes of a batch", text)

    def layer_failed(self, delivery: Delivery, error: Exception, outcome: object) -> None:
        """A layer has raised after the handler's outcome was known; the outcome stands."""
        text = f"message {delivery.id}: {type(error).__name__}; the outcome stands: {outcome!r}"
        self._write(logging.ERROR, "layer failed", text, error)

    def settlement_failed(self, delivery: Delivery, outcome: object, error: Exception) -> None:
        """A settlement was not made; the broker will give the message again."""
        with self._lock:
            self.settlement_failures += 1

        self._write(logging.WARNING, "settlement failed", f"message {delivery.id}, {outcome!r}: {error}")

    def callback_failed(self, name: str, error: BaseException) -> None:
        """A continuation or a hook has raised; nothing else changes."""
        self._write(logging.ERROR, "callback failed", f"{name}: {type(error).__name__}", error)

    def stream_failed(self, error: Exception, delay: float) -> None:
        """The subscription's stream is broken for now."""
        self._write(logging.WARNING, "stream failed", f"{error}; next try in {delay:g} s")

    def once(self, kind: str, text: str) -> None:
        """A WARNING that is written once in the subscription's life."""
        with self._lock:
            if kind in self._said:
                return

            self._said.add(kind)

        logger.warning("%s: %s", self.subscription, text)

    def _write(self, level: int, kind: str, text: str, error: BaseException | None = None) -> None:
        now = self.now()
        with self._lock:
            repeated = self._kinds.get(kind)
            if repeated is not None and now - repeated.last < _QUIET_SECONDS:
                repeated.kept_back += 1
                return

            self._kinds[kind] = _Repeated(now)

        more = f" (and {repeated.kept_back} more like it before)" if repeated and repeated.kept_back else ""
        logger.log(level, "%s: %s: %s%s", self.subscription, kind, text, more, exc_info=error)
