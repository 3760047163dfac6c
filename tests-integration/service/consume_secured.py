"""A service of one message with token and TLS, run as a process of its own by `test_security`.

Arguments: the server's URL, the authority's certificate, a topic; the token comes on
standard input. Everything is logged, to standard error.
"""

from __future__ import annotations

import logging
import sys

import anyio
from pystream import PyStream, State, mount
from pystream_pulsar import TLS, PulsarBroker, PulsarSubscription, Token


async def handle(body: bytes, handled: State[anyio.Event]) -> None:
    """The one message has come."""
    handled.set()


async def main(url: str, authority: str, topic: str, token: str) -> None:
    """Start, publish, handle, stop."""
    handled = anyio.Event()
    broker = PulsarBroker(url, auth=Token(token), tls=TLS(trust_certs=authority))
    print(broker, broker.describe(), vars(broker))
    app = PyStream("one", state=handled).with_broker(broker, mount(handle, PulsarSubscription(topic, "reader")))
    async with app.start() as running:
        await running.publisher().publish(b"hello", topic)
        with anyio.fail_after(20):
            await handled.wait()

    print("handled")


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    _, server, authority_file, name = sys.argv
    anyio.run(main, server, authority_file, name, sys.stdin.read())
