"""A service whose handler takes two seconds, run as a process of its own by `test_warm_stop`.

Arguments: the server's URL, a topic. It prints a line when a handler begins and when it ends.
"""

from __future__ import annotations

import sys

import anyio
from pystream import PyStream, mount
from pystream_pulsar import InitialPosition, PulsarBroker, PulsarSubscription


async def handle(body: bytes) -> None:
    """Take two seconds."""
    print(f"begun {body.decode()}", flush=True)
    await anyio.sleep(2 if body == b"slow" else 0)
    print(f"done {body.decode()}", flush=True)


if __name__ == "__main__":
    _, server, topic = sys.argv
    source = PulsarSubscription(topic, "reader", initial_position=InitialPosition.EARLIEST)
    PyStream("slow").with_broker(PulsarBroker(server), mount(handle, source)).run(shutdown_timeout=20)
