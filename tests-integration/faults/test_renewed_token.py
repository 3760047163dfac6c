"""A connection that is made anew under load asks for the token again, on the client's own thread."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest
from live.credentials import Credentials
from live.orders import Log, Order, Unique, publish_orders
from live.real import RealPulsar
from pystream import PyStream, State, mount
from pystream_pulsar import TLS, PulsarBroker, PulsarPublishPolicy, PulsarSubscription, Token

pytestmark = [pytest.mark.anyio, pytest.mark.faults, pytest.mark.timeout(400)]


@pytest.fixture
def anyio_backend() -> str:
    """One loop will do: the function is called on a thread of the client."""
    return "asyncio"


@pytest.fixture
def server(startable: None, credentials: Credentials) -> Iterator[RealPulsar]:
    """A secured server of the test's own."""
    with RealPulsar(credentials) as server:
        yield server


@pytest.mark.promise("PULSAR-172")
async def test_a_token_that_is_renewed(server: RealPulsar, credentials: Credentials, unique: Unique) -> None:
    """A service with TLS and a token from a function goes on after its server was killed; the function was asked."""
    topic, log, asked, count = unique("renewed"), Log(), [0], 2_000

    def give() -> str:
        asked[0] += 1
        return credentials.token(expires_in=600)

    async def read(order: Order, log: State[Log]) -> None:
        log.add(order.id)

    broker = PulsarBroker(server.tls_url, auth=Token(give), tls=TLS(trust_certs=credentials.authority))
    app = PyStream("reader", state=log).with_broker(broker, mount(read, PulsarSubscription(topic, "reader")))
    async with app.start() as running:
        # The client waits longer after each attempt in vain: up to half a minute and more for the last.
        publisher = running.publisher(policy=PulsarPublishPolicy(send_timeout=120))
        await publish_orders(publisher, topic, range(count))
        await log.distinct(count)
        before = asked[0]
        await anyio.to_thread.run_sync(server.kill)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish_orders, publisher, topic, range(count, 2 * count))
            await anyio.to_thread.run_sync(server.start)

        await log.distinct(2 * count, 120)

    assert asked[0] > before > 0
