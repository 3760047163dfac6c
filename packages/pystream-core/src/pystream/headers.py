"""Header names match without case and are sent as they were written; values are bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Final

__all__ = [
    "DEAD_LETTER_ATTEMPTS",
    "DEAD_LETTER_DESTINATION",
    "DEAD_LETTER_MESSAGE_ID",
    "DEAD_LETTER_REASON",
    "DEAD_LETTER_SUBSCRIPTION",
    "Headers",
    "find_header",
]

DEAD_LETTER_REASON: Final = "x-pystream-dead-letter-reason"
"""Of a dead letter: why it is one."""

DEAD_LETTER_SUBSCRIPTION: Final = "x-pystream-dead-letter-subscription"
"""Of a dead letter: the name of the subscription that has given it up first."""

DEAD_LETTER_DESTINATION: Final = "x-pystream-dead-letter-destination"
"""Of a dead letter: what it was published to before it became one."""

DEAD_LETTER_MESSAGE_ID: Final = "x-pystream-dead-letter-message-id"
"""Of a dead letter: the broker's identity of the message it was made of."""

DEAD_LETTER_ATTEMPTS: Final = "x-pystream-dead-letter-attempts"
"""Of a dead letter: which attempt was its last, as a decimal number."""


class Headers(MutableMapping[str, bytes]):
    """A working copy of a message's headers.

    `headers["X-Id"]` finds `x-id`; iterating shows the names as they were written. Setting
    a name that is there under another spelling replaces it, spelling included. A `str`
    value is stored as UTF-8.

    Args:
        values: Names to values, as `bytes` or `str`.
    """

    __slots__ = ("_entries",)

    def __init__(self, values: Mapping[str, bytes | str] | None = None) -> None:
        self._entries: dict[str, tuple[str, bytes]] = {}
        for name, value in (values or {}).items():
            self[name] = value

    def __getitem__(self, name: str) -> bytes:
        return self._entries[name.lower()][1]

    def __setitem__(self, name: str, value: bytes | str) -> None:
        self._entries[name.lower()] = (name, value.encode() if isinstance(value, str) else value)

    def __delitem__(self, name: str) -> None:
        del self._entries[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Headers({dict(self._entries.values())!r})"


def find_header(headers: Mapping[str, bytes], name: str) -> bytes | None:
    """The value of `name` in any mapping of headers, whatever its case; none if it is not there."""
    value = headers.get(name)
    if value is not None:
        return value

    wanted = name.lower()
    for spelled in headers:
        if spelled.lower() == wanted:
            return headers[spelled]

    return None
