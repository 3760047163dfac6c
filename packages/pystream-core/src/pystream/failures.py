"""What becomes of a delivery whose handler raised, or which could not be read."""

from __future__ import annotations

import enum
import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pystream.errors import ConfigurationError
from pystream.outcomes import Outcome, dead_letter, drop

__all__ = ["FAIL_FAST", "Backoff", "DecodeRule", "ErrorRule", "FailFast", "FailurePolicy"]


class FailFast(enum.Enum):
    """The type of `FAIL_FAST`."""

    FAIL_FAST = "fail fast"

    def __repr__(self) -> str:
        return "FAIL_FAST"


FAIL_FAST: Final = FailFast.FAIL_FAST
"""Leave the delivery unsettled and stop the service with an error."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Retry after a delay that grows with the attempts.

    Attributes:
        initial: The delay after the first attempt, in seconds, above 0.
        maximum: The longest delay, in seconds, at least `initial`.
        factor: What the delay is multiplied with from attempt to attempt, 1 or more.
        jitter: The share of the delay that is random, from 0 up to 1: 0.2 is plus or minus 20 %.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    initial: float = 1.0
    maximum: float = 60.0
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.initial <= self.maximum < float("inf"):
            raise ConfigurationError(
                f"Backoff(initial={self.initial!r}, maximum={self.maximum!r}): "
                "give an initial delay above 0 seconds and a maximum at least as long"
            )

        if not self.factor >= 1 or not 0 <= self.jitter < 1:
            raise ConfigurationError(
                f"Backoff(factor={self.factor!r}, jitter={self.jitter!r}): "
                "give a factor of 1 or more and a jitter of 0 or more, below 1"
            )

    def delay(self, attempt: int) -> float:
        """Seconds to wait after `attempt` (1 or more) failed, jitter included."""
        exponent = min(attempt - 1, 64)  # beyond it every factor above 1 has long reached the maximum
        base = min(self.initial * self.factor**exponent, self.maximum)
        return base * (1 + self.jitter * random.uniform(-1, 1))  # noqa: S311 - spreads retries, guards nothing


_VERDICTS = (Outcome, FailFast, Backoff)
Verdict: TypeAlias = "Outcome | FailFast | Backoff"
ErrorRule: TypeAlias = "Verdict | Mapping[type[Exception], Verdict] | Callable[[Exception, int], Verdict]"
"""For every exception, per class (the nearest in the exception's MRO), or by a function of exception and attempt."""

DecodeRule: TypeAlias = "Outcome | FailFast"
"""For every delivery that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """What to do when a handler raises or a delivery cannot be read.

    Given to the app, a router, `@subscriber` or `mount`; the innermost policy counts, whole.

    Attributes:
        error: When the handler raises: by default a retry after 1 s, doubling to 60 s. A
            mapping gives a rule per exception class and the default for the others; a
            function gets the exception and the attempt. A function that raises counts as `FAIL_FAST`.
        decode: When the payload or a header cannot be read: by default (none) it goes to the
            dead letters if the mount declares `dead_letter=`, else it is dropped; with an ERROR.
        decode_limit: So many unreadable deliveries in a row stop the service (1 or more), or
            none for no limit. Counted only where the mount declares no `dead_letter=`.

    Raises:
        ConfigurationError: A rule is none, or the limit is out of its range.
    """

    error: ErrorRule = field(default_factory=Backoff)
    decode: DecodeRule | None = None
    decode_limit: int | None = 100

    def __post_init__(self) -> None:
        rule: Any = self.error
        if isinstance(rule, Mapping):
            _check_rules(rule)
        elif not isinstance(rule, _VERDICTS) and (not callable(rule) or inspect.iscoroutinefunction(rule)):
            raise ConfigurationError(
                f"FailurePolicy(error={rule!r}): give an outcome, FAIL_FAST, a Backoff, "
                "a mapping of exception classes to these, or a plain function"
            )

        if self.decode is not None and not isinstance(self.decode, Outcome | FailFast):
            raise ConfigurationError(f"FailurePolicy(decode={self.decode!r}): give an outcome or FAIL_FAST")

        if self.decode_limit is not None and self.decode_limit < 1:
            raise ConfigurationError(f"FailurePolicy(decode_limit={self.decode_limit!r}): give 1 or more, or None")

    @classmethod
    def strict(cls) -> FailurePolicy:
        """Errors stop the service; what cannot be read is dropped."""
        return cls(error=FAIL_FAST, decode=drop(), decode_limit=None)

    def on_unreadable(self, error: Exception, *, has_dead_letter: bool) -> DecodeRule:
        """The verdict on a delivery that cannot be read.

        Args:
            error: What could not be read; its text becomes the reason of the dead letter.
            has_dead_letter: Whether the mount declares where dead letters go.
        """
        if self.decode is not None:
            return self.decode

        return dead_letter(str(error) or type(error).__name__) if has_dead_letter else drop()

    @property
    def dead_letter_rule(self) -> str | None:
        """The rule that asks for dead letters, as it was written, or none if none is known to."""
        if _is_dead_letter(self.decode):
            return f"decode={self.decode!r}"

        if not isinstance(self.error, Mapping):
            return f"error={self.error!r}" if _is_dead_letter(self.error) else None

        found = next(((cls, rule) for cls, rule in self.error.items() if _is_dead_letter(rule)), None)
        return None if found is None else f"error={{{found[0].__name__}: {found[1]!r}}}"

    def on_error(self, error: Exception, attempt: int) -> Verdict:
        """The verdict on an exception of the handler at `attempt` (1 or more).

        Raises:
            Exception: Whatever a function given as the rule raises; `ConfigurationError` if it
                returns no verdict.
        """
        rule = self.error
        if isinstance(rule, Mapping):
            return next((rule[cls] for cls in type(error).__mro__ if cls in rule), _DEFAULT_BACKOFF)

        if isinstance(rule, _VERDICTS):
            return rule

        verdict = rule(error, attempt)
        if not isinstance(verdict, _VERDICTS):
            raise ConfigurationError(
                f"the failure policy's function returned {verdict!r}: return an outcome, FAIL_FAST or a Backoff"
            )

        return verdict


def _is_dead_letter(rule: object) -> bool:
    return isinstance(rule, Outcome) and rule.kind == "dead_letter"


def _check_rules(rules: Mapping[Any, Any]) -> None:
    for error, rule in rules.items():
        if not isinstance(error, type) or not issubclass(error, Exception) or not isinstance(rule, _VERDICTS):
            raise ConfigurationError(
                f"FailurePolicy(error=...) maps {error!r} to {rule!r}: "
                "map subclasses of Exception to an outcome, FAIL_FAST or a Backoff"
            )


_DEFAULT_BACKOFF = Backoff()
