"""`Defence`: the hooks that all defences of a session share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pystream_pulsar.message import PulsarMessage

__all__ = ["Defence", "Entry", "entry_of"]

Entry: TypeAlias = "tuple[str, int, int]"
"""Topic, ledger and entry: what a negative acknowledgement is about."""


def entry_of(message: PulsarMessage) -> Entry:
    """The entry that `message` came in."""
    return message.identity[:3]


class Defence:
    """What a session tells each of its defences, in the order of its list; all on the owner's loop.

    A hook that a defence does not override does nothing.
    """

    __slots__ = ()

    @property
    def quiet(self) -> bool:
        """Whether it has nothing to watch, so that arrivals and acknowledgements may pass it by."""
        return True

    def arrived(self, message: PulsarMessage) -> bool:
        """A message was pulled. True: it is not for the handler, and no further defence is asked."""
        return False

    def settled(self, message: PulsarMessage) -> None:
        """A message was acknowledged."""

    def held(self, message: PulsarMessage, delay: float) -> None:
        """A message is to be asked for again, `delay` seconds from now at the earliest."""

    def asked_back(self, burst: Sequence[PulsarMessage]) -> None:
        """These were negatively acknowledged, just now and together."""

    def cleared(self, entry: Entry) -> None:
        """An entry that was asked back is watched no longer."""
