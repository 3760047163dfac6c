"""A batch: several deliveries that one call of the handler gets together."""

from __future__ import annotations

from collections.abc import Sequence

from pystream.protocols import Delivery


class Batch:
    """What a dispatch form takes and starts in place of a delivery.

    Attributes:
        deliveries: In the order of the stream, one or more.
    """

    __slots__ = ("deliveries",)

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries = deliveries

    def release(self) -> None:
        """Give every delivery back that is not settled. Synchronous, from any thread."""
        for delivery in self.deliveries:
            delivery.release()
