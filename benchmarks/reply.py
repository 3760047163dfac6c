"""`consume.reply`: a reply per delivery, published to the memory broker, which keeps it for a subscription."""

from __future__ import annotations

from pystream import PyStream, mount
from pystream.clock import LoopClock
from pystream.memory import MemoryBroker, MemorySubscription

from benchmarks.consume import through_service
from benchmarks.payload import raw, replying
from benchmarks.stand_ins import ready

_REPLIES = "replies"


async def to_memory(count: int) -> float:
    """Handle what is ready; each reply is confirmed before its delivery is acknowledged."""
    broker = MemoryBroker()
    mounted = mount(raw, MemorySubscription(_REPLIES), name="bench")
    async with PyStream("open", plugins=[]).with_broker(broker, mounted).start():
        pass  # a subscription has to be known before anything is kept for it

    connection = await broker.connect(LoopClock())
    try:
        return await through_service(ready(count), replying, publisher=connection.publisher(), reply_to=_REPLIES)
    finally:
        await connection.close()
