"""A service of one message, run as a process of its own by `test_processes`.

Arguments: the server's URL, a topic, a loop's name. It publishes one message, handles it
and stops.
"""

from __future__ import annotations

import sys

import anyio
from pystream import PyStream, State, mount
from pystream_pulsar import PulsarBroker, PulsarSubscription


async def handle(body: bytes, handled: State[anyio.Event]) -> None:
    """The one message has come."""
    handled.set()


async def main(url: str, topic: str) -> None:
    """Start, publish, handle, stop."""
    handled = anyio.Event()
    app = PyStream("one", state=handled).with_broker(
        PulsarBroker(url), mount(handle, PulsarSubscription(topic, "reader"))
    )
    async with app.start() as running:
        await running.publisher().publish(b"hello", topic)
        with anyio.fail_after(20):
            await handled.wait()


if __name__ == "__main__":
    _, server, name, loop = sys.argv
    anyio.run(
        main,
        server,
        name,
        backend="trio" if loop == "trio" else "asyncio",
        backend_options={} if loop == "trio" else {"use_uvloop": loop == "uvloop"},
    )
