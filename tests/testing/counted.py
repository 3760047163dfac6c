"""A service of which every hook, codec call and resource writes a line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic import BaseModel, field_serializer, field_validator
from pystream import PyStream, Settled, State, mount
from pystream.memory import MemoryBroker
from pystream.protocols import Outgoing

__all__ = ["EXPECTED", "Counted"]

EXPECTED = """\
state opens
on_startup counted None
after_startup counted None
decode Item 1
handle 1 with state
encode Reply 1
settled items ack() 1 None
end {"id":1}
settled replies ack() 1 None
on_shutdown counted None
after_shutdown counted None
state closes"""

_lines: list[str] = []


class Item(BaseModel):
    id: int

    @field_validator("id")
    @classmethod
    def decoding(cls, value: int) -> int:
        _lines.append(f"decode Item {value}")
        return value


class Reply(BaseModel):
    id: int

    @field_serializer("id")
    def encoding(self, value: int) -> int:
        _lines.append(f"encode Reply {value}")
        return value


class Counted:
    """The service, and what it has written.

    Args:
        at_the_end: Called after the last settlement.
    """

    def __init__(self, at_the_end: Callable[[], object] = lambda: None) -> None:
        _lines.clear()
        self.lines = _lines
        self._broker = MemoryBroker()
        self._at_the_end = at_the_end
        self.app = PyStream("counted", state=self._state).with_broker(
            self._broker, mount(self._handle, "items", reply_to="replies"), mount(self._end, "replies")
        )
        for hook in ("on_startup", "after_startup", "on_shutdown", "after_shutdown"):
            getattr(self.app, hook)(self._noting(hook))

        self.app.post_settle(self._settled)

    async def publish(self) -> None:
        """Publish the one item, as somebody else would."""
        await self._broker.publisher().publish(Outgoing("items", b'{"id": 1}', {}))

    async def _state(self) -> AsyncIterator[str]:
        _lines.append("state opens")
        yield "state"
        _lines.append("state closes")

    async def _handle(self, item: Item, state: State[str]) -> Reply:
        _lines.append(f"handle {item.id} with {state}")
        return Reply(id=item.id)

    async def _end(self, raw: bytes) -> None:
        _lines.append(f"end {raw.decode()}")

    def _settled(self, event: Settled) -> None:
        _lines.append(f"settled {event.subscription} {event.outcome} {event.attempt} {event.error}")
        if event.subscription == "replies":
            self._at_the_end()

    def _noting(self, hook: str) -> Callable[[Any], None]:
        def note(event: Any) -> None:
            _lines.append(f"{hook} {event.title} {event.failure}")

        return note
