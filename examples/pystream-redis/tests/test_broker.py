"""`RedisBroker`: what it takes, what it refuses, what it shows."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import anyio
import pystream
import pytest
from pystream.clock import LoopClock
from pystream.errors import ConfigurationError, ConnectError, PublishError, SubscribeError
from pystream.memory import MemorySubscription
from pystream.protocols import Mounting, Outgoing
from server import Server, running
from support import connected, new_stream

from pystream_redis import RedisBroker, RedisPublishPolicy, RedisStream

_SECRETS = ("s3cr3t", "alice", "p%40ss", "p@ss")


@pytest.mark.promise("SDK-143")
def test_found_by_its_url() -> None:
    """The entry point makes the broker of a `redis://` URL."""
    broker = pystream.broker("redis://127.0.0.1:6390/3")

    assert isinstance(broker, RedisBroker)
    assert broker.describe() == "redis://127.0.0.1:6390/3"
    assert broker.source_types == (RedisStream,)


@pytest.mark.promise("SDK-144")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("REDIS://localhost/2", "redis://localhost:6379/2"),
        ("redis://alice:s3cr3t@localhost:1", "redis://localhost:1/0"),
        ("redis://:p%40ss@[::1]:1", "redis://[::1]:1/0"),
    ],
)
def test_address_is_shown_without_credentials(url: str, address: str) -> None:
    """Description and repr hold host, port and database, and no credentials."""
    broker = RedisBroker(url)

    assert broker.describe() == address
    assert repr(broker) == f"RedisBroker({address!r})"


@pytest.mark.promise("SDK-144")
@pytest.mark.parametrize(
    "url",
    [
        "localhost",
        "rediss://alice:s3cr3t@localhost",
        "redis://alice:s3cr3t@",
        "redis://alice:s3cr3t@localhost:0",
        "redis://alice:s3cr3t@localhost:65536",
        "redis://alice:s3cr3t@localhost/a",
        "redis://localhost/0?password=s3cr3t",
        "redis://alice:p@ss:w/rd@localhost:6379:1",
    ],
)
def test_url_that_cannot_work_is_refused(url: str) -> None:
    """A URL that cannot work is refused when the broker is made, in one line without credentials."""
    with pytest.raises(ConfigurationError) as refused:
        RedisBroker(url)

    text = str(refused.value)
    assert "redis://host:6379/0" in text
    assert "\n" not in text
    assert not [secret for secret in _SECRETS if secret in text]


@pytest.mark.promise("SDK-143")
def test_bare_name_needs_a_group() -> None:
    """A bare stream name joins the default group, and is refused where there is none."""
    assert RedisBroker("redis://h", default_group="g").default_source("s") == RedisStream("s", "g")
    with pytest.raises(ConfigurationError, match=r"'s' needs a consumer group: write RedisStream\('s', 'group'\)"):
        RedisBroker("redis://h").default_source("s")

    with pytest.raises(ConfigurationError, match="default_group"):
        RedisBroker("redis://h", default_group="")


@pytest.mark.promise("SDK-145")
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_trio_is_refused() -> None:
    """On trio the connect is refused at once, in a sentence that names the client and the way out."""
    with pytest.raises(ConnectError, match=r"needs asyncio or uvloop, since its client redis-py .* --backend asyncio"):
        await RedisBroker("redis://127.0.0.1:1").connect(LoopClock())


@pytest.mark.promise("SDK-144")
@pytest.mark.anyio
async def test_nobody_listens() -> None:
    """A port where nobody listens is a `ConnectError` with the address and the reason."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"redis://alice:s3cr3t@127.0.0.1:{taken.getsockname()[1]}"
        with anyio.fail_after(8), pytest.raises(ConnectError, match=r"redis://127\.0\.0\.1:\d+/0 cannot be") as refused:
            await RedisBroker(url).connect(LoopClock())

    assert not [secret for secret in _SECRETS if secret in str(refused.value)]


@pytest.mark.promise("SDK-144")
@pytest.mark.anyio
async def test_nobody_answers() -> None:
    """A server that accepts and says nothing is a `ConnectError` within the plugin's own bound."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with anyio.fail_after(8), pytest.raises(ConnectError, match="no answer within 5 s"):
            await RedisBroker(url).connect(LoopClock())


@pytest.mark.promise("SDK-144")
@pytest.mark.anyio
async def test_credentials_are_used_and_never_shown(tmp_path: Path) -> None:
    """The password of the URL opens the connection; a wrong one and none are refused without showing any."""
    with running(tmp_path, "--requirepass", "p@ss") as server:
        address = f"127.0.0.1:{server.port}"
        connection = await RedisBroker(f"redis://default:p%40ss@{address}").connect(LoopClock())
        assert "p@ss" not in repr(connection)
        await connection.close()
        for user_info in (":s3cr3t@", ""):
            with pytest.raises(ConnectError, match=address) as refused:
                await RedisBroker(f"redis://{user_info}{address}").connect(LoopClock())

            assert not [secret for secret in _SECRETS if secret in str(refused.value)]


@pytest.mark.promise("SDK-143")
@pytest.mark.anyio
async def test_foreign_sources_and_policies_are_refused(redis_server: Server) -> None:
    """A source or a policy of another broker is refused, both sides named; so are options."""
    async with connected(redis_server) as connection:
        with pytest.raises(SubscribeError, match=r"'reader'.* takes a RedisStream, .* is a MemorySubscription"):
            await connection.subscribe(MemorySubscription("s"), Mounting(name="reader"))

        with pytest.raises(ConfigurationError, match="takes a RedisPublishPolicy, and int was given"):
            connection.publisher(5)

        with pytest.raises(PublishError, match="no publish options, and int was given"):
            await connection.publisher().publish(Outgoing("s", b"", {}), 5)


@pytest.mark.promise("SDK-143")
@pytest.mark.anyio
async def test_refused_subscription_names_the_reason(redis_server: Server, client: Any) -> None:
    """A key that is no stream refuses the subscription with the server's reason, and a publish too."""
    client.set("text", "no stream")
    async with connected(redis_server) as connection:
        with pytest.raises(SubscribeError, match=r"'reader' to 'text' .* was not opened: .*wrong kind"):
            await connection.subscribe(RedisStream("text", "g"), Mounting(name="reader"))

        with pytest.raises(PublishError, match=r"a message to 'text' was refused: .*wrong kind"):
            await connection.publisher().publish(Outgoing("text", b"", {}))


@pytest.mark.promise("SDK-146")
@pytest.mark.anyio
async def test_length_of_a_stream_can_be_bounded(redis_server: Server, client: Any) -> None:
    """With `max_length` a stream keeps about so many entries, without it all."""
    async with connected(redis_server) as connection:
        bounded, unbounded = new_stream().stream, new_stream().stream
        for stream, policy in ((bounded, RedisPublishPolicy(max_length=100)), (unbounded, None)):
            publisher = connection.publisher(policy)
            for _ in range(400):
                await publisher.publish(Outgoing(stream, b"x", {}))

        assert 100 <= client.xlen(bounded) < 400
        assert client.xlen(unbounded) == 400

    with pytest.raises(ConfigurationError, match="max_length=0"):
        RedisPublishPolicy(max_length=0)


@pytest.mark.promise("SDK-146")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("outgoing", "refusal"),
    [
        (Outgoing("", b"", {}), "no stream of Redis"),
        (Outgoing("s", "text", {}), "a payload of str"),  # type: ignore[arg-type]  # what is refused
        (Outgoing("s", b"", {"x": "text"}), "a header that"),  # type: ignore[dict-item]  # what is refused
        (Outgoing("s", b"", {}, 5), "a key of int"),  # type: ignore[arg-type]  # what is refused
        (Outgoing("s", b"", {}, "\ud800"), "no UTF-8"),
    ],
)
async def test_message_that_cannot_be_stored_is_refused(redis_server: Server, outgoing: Outgoing, refusal: str) -> None:
    """A message that is not what it has to be is refused before it is sent."""
    async with connected(redis_server) as connection:
        with pytest.raises(PublishError, match=refusal):
            await connection.publisher().publish(outgoing)
