"""The helpers over the admin interface say what the server says."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from live.admin import Admin, AdminError
from live.choice import LiveServer
from pystream.protocols import Outgoing
from pystream.signal import Signal
from pystream_pulsar._client.connection import ClientSettings, ClientTransport
from pystream_pulsar.transport import ConsumerSpec, ProducerSpec

pytestmark = [pytest.mark.anyio, pytest.mark.gate]


@pytest.fixture
def anyio_backend() -> str:
    """One loop will do."""
    return "asyncio"


@pytest.fixture
def admin(real_server: LiveServer) -> Admin:
    """The chosen server's admin interface."""
    if real_server.admin is None:
        pytest.skip("the running server's admin interface is not known: set PYSTREAM_PULSAR_ADMIN_URL")

    return real_server.admin


@pytest.mark.promise("HOUSE-22")
def test_namespaces_and_partitions(admin: Admin, unique: Callable[[str], str]) -> None:
    """Namespaces and partitioned topics are made, listed and deleted."""
    namespace = f"public/{unique('namespace')}"
    admin.create_namespace(namespace)
    assert namespace in admin.namespaces("public")
    topic = f"persistent://{namespace}/orders"
    admin.create_partitioned(topic, 3)
    assert admin.partitions(topic) == 3
    assert sorted(admin.topics(namespace)) == [f"{topic}-partition-{number}" for number in range(3)]
    admin.delete(topic)
    assert admin.topics(namespace) == []
    admin.delete_namespace(namespace)
    assert namespace not in admin.namespaces("public")
    with pytest.raises(AdminError) as refused:
        admin.topics(namespace)

    assert refused.value.status == 404


@pytest.mark.promise("HOUSE-22")
async def test_a_subscription(real_server: LiveServer, admin: Admin, unique: Callable[[str], str]) -> None:
    """Type, backlog, unacknowledged messages and consumers of a subscription are told; a topic can be deleted."""
    topic = f"persistent://public/default/{unique('stats')}"
    transport, signal = ClientTransport(ClientSettings(url=real_server.url)), Signal()
    await transport.connect()
    spec = ConsumerSpec(
        topic=topic, subscription="s", type="KeyShared", initial_position="Earliest", receiver_queue_size=10
    )
    consumer = await transport.subscribe(spec, signal.wake_from_thread)
    producer = await transport.produce(ProducerSpec(topic=topic, send_timeout=30, max_pending=10))
    producer.send(Outgoing(topic, b"x", {}), lambda _error: None)
    with anyio.fail_after(20):
        while not consumer.pull(1):
            await signal.wait()

    stats = admin.subscription(topic, "s")
    assert (stats.type, stats.backlog, stats.unacknowledged, stats.consumers) == ("Key_Shared", 1, 1, 1)
    await transport.close()
    assert admin.subscription(topic, "s").consumers == 0
    admin.unload(topic)
    admin.delete(topic)
    assert topic not in admin.topics("public/default")
