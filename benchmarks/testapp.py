"""`testapp.publish`: what a message costs in a test, from the publish to the end of its reaction.

The app runs in process over the memory broker, with everything recorded. The floor is that of
the consume path: one validation and one awaited handler.
"""

from __future__ import annotations

import time

from pystream import PyStream, mount
from pystream.memory import MemoryBroker, MemorySubscription
from pystream_testing import TestApp

from benchmarks.payload import PAYLOAD, typed, validate


async def testapp(count: int) -> float:
    """Publish an order through the test's broker that many times; each publish returns when the handler has run."""
    app = PyStream("bench", plugins=[])
    app.with_broker(MemoryBroker(), mount(typed, MemorySubscription("orders"), name="bench"))
    order = validate(PAYLOAD)
    async with TestApp.start(app) as t:
        started = time.perf_counter()
        for _ in range(count):
            await t.broker().publish("orders", order)

        taken = time.perf_counter() - started
        t.subscriber(typed).assert_called(times=count)

    return taken
