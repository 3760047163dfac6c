"""A service on a SHARED subscription, run in several processes by `test_killed_process`.

The server's URL and the topic come from the environment. It prints the process's id: alone
when it runs, and with the order's number before an order is acknowledged.
"""

from __future__ import annotations

import os

import anyio
from live.orders import Order
from pystream import PyStream, mount
from pystream_pulsar import PulsarBroker, PulsarSubscription

URL, TOPIC = "SHARED_ORDERS_URL", "SHARED_ORDERS_TOPIC"


async def handle(order: Order) -> None:
    """Take a moment, in which the process may be killed."""
    await anyio.sleep(0.002)
    os.write(1, f"{os.getpid()} {order.id}\n".encode())  # whole, among the lines of other processes


def running() -> None:
    """Say so."""
    os.write(1, f"{os.getpid()}\n".encode())


def make() -> PyStream:
    """The service."""
    source = PulsarSubscription(os.environ[TOPIC], "reader")
    app = PyStream("shared").with_broker(PulsarBroker(os.environ[URL]), mount(handle, source, workers=16))
    app.after_startup(running)
    return app
