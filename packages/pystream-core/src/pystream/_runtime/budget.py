"""The one budget over the steps of a stop that wait for the service's own work."""

from __future__ import annotations

import math
from dataclasses import dataclass

import anyio

_KEPT_FOR_THE_TAIL = 0.1


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a stop may wait: deliveries first, then what comes after their settlement.

    Attributes:
        started: The loop's time at which it began to run.
        seconds: The whole of it, or none for no limit.
    """

    started: float
    seconds: float | None

    @classmethod
    def begin(cls, seconds: float | None) -> Budget:
        """A budget that runs from now on."""
        return cls(anyio.current_time(), seconds)

    @property
    def for_deliveries(self) -> float:
        """Until when deliveries in hand may run; a tenth is kept for the tracked tasks."""
        return math.inf if self.seconds is None else self.started + self.seconds * (1 - _KEPT_FOR_THE_TAIL)

    def for_tasks(self, now: float) -> float:
        """Until when tracked tasks may run before the brokers are closed; asked for once the deliveries are over.

        What cancelled handlers still need to end is not taken from the tenth.
        """
        if self.seconds is None:
            return math.inf

        return max(self.started + self.seconds, now + self.seconds * _KEPT_FOR_THE_TAIL)
