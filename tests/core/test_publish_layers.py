"""Publish layers: around everything that is sent, the first added outermost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pystream import FailurePolicy, Out, Outcome, PyStream, Router, by_key, dead_letter, drop, mount, retry, subscriber
from pystream.errors import PublishError
from pystream.layers import PublishLayer, PublishNext, with_layers
from pystream.memory import MemoryBroker
from pystream.protocols import Outgoing

from tests.core.lifecycle.support import publish, until
from tests.core.rig import rig
from tests.core.scripted import DelayableDelivery, ScriptedBroker, ScriptedDelivery

pytestmark = pytest.mark.anyio


def noting(trace: list[str], name: str) -> PublishLayer:
    """A layer that writes down what it is given, and when it was confirmed."""

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        trace.append(f"{name}: {outgoing.destination}")
        await call_next(outgoing)
        trace.append(f"{name}: confirmed")

    return layer


async def replying(body: bytes) -> bytes:
    return b"done"


async def publishing(body: bytes, out: Out[bytes]) -> None:
    await out.publish(b"done", "elsewhere")


async def retrying(body: bytes) -> Outcome:
    return retry()


async def burying(body: bytes) -> Outcome:
    return dead_letter("no stock")


async def unreadable(body: int) -> None: ...


SENDS = [
    pytest.param(replying, {"reply_to": "confirmed"}, "confirmed", id="reply"),
    pytest.param(publishing, {}, "elsewhere", id="Out"),
    pytest.param(retrying, {"max_attempts": 3}, "orders", id="copy"),
    pytest.param(retrying, {"max_attempts": 1, "dead_letter": "dead"}, "dead", id="spent"),
    pytest.param(burying, {"dead_letter": "dead"}, "dead", id="dead letter"),
    pytest.param(unreadable, {"dead_letter": "dead"}, "dead", id="unreadable"),
]


@pytest.mark.promise("LAYER-20")
@pytest.mark.parametrize(("handler", "settings", "destination"), SENDS)
@pytest.mark.parametrize("form", [{}, {"workers": 2}, {"workers": by_key(2)}], ids=repr)
async def test_every_send_of_a_handler_goes_through_them(
    handler: Callable[..., Any], settings: dict[str, Any], destination: str, form: dict[str, Any]
) -> None:
    """Replies, publishes of the handler, copies for another attempt and dead letters; once each."""
    trace: list[str] = []
    layers = [noting(trace, "outer"), noting(trace, "inner")]
    async with rig(handler, ScriptedDelivery("1"), publish_layers=layers, **settings, **form) as running:
        await running.ends(1)

    assert trace == [f"outer: {destination}", f"inner: {destination}", "inner: confirmed", "outer: confirmed"]
    assert [sent.destination for sent in running.broker.sent] == [destination]
    assert running.lines[-1] == "ack 1"


@pytest.mark.promise("LAYER-20")
@pytest.mark.parametrize("handler", [replying, publishing], ids=["reply", "Out"])
async def test_they_are_nested_like_consume_layers(handler: Callable[..., Any]) -> None:
    """Those of the app stand around the router's, these around the declaration's, these around the mount's."""
    trace: list[str] = []
    names = ["app", "router", "declared", "mounted"]
    app, router, declared, mounted = ([noting(trace, name)] for name in names)
    reply_to = "confirmed" if handler is replying else None

    async def handle(body: bytes, out: Out[bytes]) -> Any:
        return await (replying(body) if handler is replying else publishing(body, out))

    subscriber("orders", publish_layers=declared, reply_to=reply_to)(handle)
    routed = Router(publish_layers=router).include(mount(handle, publish_layers=mounted))
    service = PyStream("shop", publish_layers=app).with_broker(MemoryBroker(), routed)
    async with service.start() as running:
        await publish(running, b"1")
        assert trace == ["app: orders", "app: confirmed"]
        await until(lambda: len(trace) == 2 + 2 * len(names))

    destination = "confirmed" if handler is replying else "elsewhere"
    assert trace[2:6] == [f"{name}: {destination}" for name in names]
    assert trace[6:] == [f"{name}: confirmed" for name in reversed(names)]


@pytest.mark.promise("LAYER-21")
async def test_a_publisher_outside_of_handlers_has_the_apps_layers() -> None:
    """`RunningApp.publisher()` goes through the layers of the app, and through no router's."""
    trace: list[str] = []
    seen: list[bytes] = []

    @subscriber("orders")
    async def handle(body: bytes) -> None:
        seen.append(body)

    router = Router(publish_layers=[noting(trace, "router")]).include(handle)
    app = PyStream("shop", publish_layers=[noting(trace, "app")]).with_broker(MemoryBroker(), router)
    async with app.start() as running:
        await publish(running, b"1")
        assert trace == ["app: orders", "app: confirmed"]
        await until(lambda: seen)


# What a layer may do.


@pytest.mark.promise("LAYER-22")
@pytest.mark.parametrize("as_new", [True, False], ids=["another", "its own"])
async def test_a_layer_may_change_what_is_sent(as_new: bool) -> None:
    """It changes its own copy, or hands on another message; what the caller gave stays as it was."""

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        headers = {**outgoing.headers, "x-service": b"shop"}
        if as_new:
            await call_next(Outgoing("other", outgoing.payload + b"!", headers, "key"))
            return

        outgoing.destination, outgoing.payload, outgoing.key = "other", outgoing.payload + b"!", "key"
        outgoing.headers = headers
        await call_next(outgoing)

    broker = ScriptedBroker()
    given = Outgoing("orders", b"1", {"a": b"1"})
    await with_layers(broker, [layer]).publish(given)
    assert broker.sent == [Outgoing("other", b"1!", {"a": b"1", "x-service": b"shop"}, "key")]
    assert given == Outgoing("orders", b"1", {"a": b"1"})


@pytest.mark.promise("LAYER-22")
async def test_headers_changed_in_place_are_of_this_message_alone() -> None:
    """What a layer writes into the headers is in no later message, and not in what the caller gave."""

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        headers: Any = outgoing.headers
        headers[outgoing.payload.decode()] = b""
        await call_next(outgoing)

    broker = ScriptedBroker()
    layered = with_layers(broker, [layer])
    publisher: Out[bytes] = Out(layered)
    given = Outgoing("orders", b"3", {"a": b"1"})
    await publisher.publish(b"1", "orders")
    await publisher.publish(b"2", "orders")
    await layered.publish(given)
    assert [dict(sent.headers) for sent in broker.sent] == [{"1": b""}, {"2": b""}, {"a": b"1", "3": b""}]
    assert given.headers == {"a": b"1"}


@pytest.mark.promise("LAYER-22")
async def test_options_pass_by() -> None:
    """The options of a publish reach the broker through every layer."""
    seen: list[Any] = []

    class Broker(ScriptedBroker):
        async def publish(self, outgoing: Outgoing, options: Any = None) -> None:
            seen.append(options)

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        await call_next(outgoing)

    publisher: Out[bytes] = Out(with_layers(Broker(), [layer, layer]))
    await publisher.publish(b"1", "orders", options="now")
    await publisher.publish(b"1", "orders")
    assert seen == ["now", None]


@pytest.mark.promise("LAYER-23")
@pytest.mark.parametrize(("handler", "settings", "destination"), SENDS)
async def test_a_layer_may_send_nothing(
    handler: Callable[..., Any], settings: dict[str, Any], destination: str
) -> None:
    """What it does not hand on is not sent, and counts as confirmed."""

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        assert outgoing.destination == destination

    async with rig(handler, ScriptedDelivery("1"), publish_layers=[layer], **settings) as running:
        await running.ends(1)

    assert running.lines == ["ack 1"]


@pytest.mark.promise("LAYER-24")
@pytest.mark.parametrize(
    ("handler", "settings", "line"),
    [
        (replying, {"reply_to": "confirmed"}, "retry_after 1"),
        (publishing, {}, "reject 1"),
        (retrying, {"max_attempts": 3}, "retry_after 1"),
        (burying, {"dead_letter": "dead"}, "retry_after 1"),
    ],
    ids=["reply", "Out", "copy", "dead letter"],
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_layer_that_raises_is_a_failed_publish(
    handler: Callable[..., Any], settings: dict[str, Any], line: str, after: bool
) -> None:
    """A reply, a copy and a dead letter leave the delivery to be retried; in the handler it is the handler's."""

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        if after:
            await call_next(outgoing)

        raise PublishError("not allowed")

    policy = FailurePolicy(error={PublishError: drop()})
    item = DelayableDelivery("1")
    async with rig(handler, item, policy=policy, publish_layers=[layer], **settings) as running:
        await running.ends(1)

    assert running.lines[-1] == line
    assert len(running.broker.sent) == int(after)


@pytest.mark.promise("LAYER-22")
async def test_a_layer_may_suspend_and_sends_side_by_side() -> None:
    """Publishes that run at once do not meet in a layer."""
    broker = ScriptedBroker()

    async def layer(outgoing: Outgoing, call_next: PublishNext) -> None:
        outgoing.headers = {"n": outgoing.payload}
        for _ in range(int(outgoing.payload)):
            await anyio.lowlevel.checkpoint()

        await call_next(outgoing)

    publisher: Out[bytes] = Out(with_layers(broker, [layer]))
    async with anyio.create_task_group() as tasks:
        for number in (3, 1, 2):
            tasks.start_soon(publisher.publish, str(number).encode(), "orders")

    assert sorted((sent.payload, sent.headers["n"]) for sent in broker.sent) == [(n, n) for n in (b"1", b"2", b"3")]
