"""The figures of a run, and whether they are good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

__all__ = ["Report", "percentile"]

_JSON_KEYS = (
    "server",
    "published",
    "handled",
    "replied",
    "retried",
    "dropped",
    "lost",
    "order_violations",
    "rate",
    "p50_ms",
    "p99_ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the table and the JSON line say.

    Attributes:
        server: The broker's address.
        published: Messages whose publish the broker has confirmed, the unreadable ones included.
        handled: Distinct orders and movements whose handler has reached its end.
        replied: Distinct orders whose confirmation has arrived on the second topic.
        retried: Deliveries given back for another attempt.
        dropped: Deliveries that could not be read.
        lost: Published messages that have not reached their end although the broker was given time.
        left: The same, where the user's stop was not waited out; they are still on the broker.
        duplicates: Messages handled, or confirmations received, more than once; allowed.
        order_violations: Movements applied after a later one of their article.
        rate: Handled messages of the bulk per second, from its first publish to its last confirmation.
        p50_ms: Half of the timed orders were handled within so many milliseconds after
            their publish; none if there were none.
        p99_ms: The same of 99 in 100.
        seconds: How long the run took, without the start of the server.
    """

    server: str
    published: int
    handled: int
    replied: int
    retried: int
    dropped: int
    lost: int
    left: int
    duplicates: int
    order_violations: int
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost or out of order."""
        return not self.lost and not self.order_violations

    def json(self) -> str:
        """One line with the machine-readable figures."""
        return json.dumps({key: getattr(self, key) for key in _JSON_KEYS})


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` (above 0, up to 1) of the values do not exceed; none without values."""
    if not values:
        return None

    return sorted(values)[ceil(share * len(values)) - 1]
