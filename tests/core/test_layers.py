"""Consume layers: where they stand, what they see, what they may decide, and what they cannot undo."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from pystream import (
    Context,
    FailurePolicy,
    Outcome,
    PyStream,
    Router,
    Settle,
    ack,
    by_key,
    drop,
    mount,
    retry,
    retry_after,
    subscriber,
)
from pystream.errors import DecodeError, PyStreamError
from pystream.layers import CallNext, Layer
from pystream.memory import MemoryBroker

from tests.core.lifecycle.support import publish, until
from tests.core.rig import rig
from tests.core.scripted import DelayableDelivery, ScriptedDelivery

FORMS = [{}, {"workers": 2}, {"workers": by_key(2)}]


class Order(BaseModel):
    id: int


async def nothing(body: bytes) -> None: ...


async def handle_order(order: Order) -> None: ...


async def failing(body: bytes) -> None:
    raise KeyError("sku")


def noting(trace: list[str], name: str) -> Layer:
    """A layer that writes down when it begins and what it ends with."""

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        trace.append(f"{name} begins")
        try:
            outcome = await call_next(ctx)
        except Exception as error:
            trace.append(f"{name}: {type(error).__name__}")
            raise

        trace.append(f"{name}: {outcome!r}")
        return outcome

    return layer


async def passing(ctx: Context, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


# Where they stand.


@pytest.mark.promise("LAYER-1")
@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS, ids=repr)
async def test_the_first_added_is_the_outermost(form: dict[str, Any]) -> None:
    """Those of the app stand around the router's, these around the declaration's, these around the mount's."""
    trace: list[str] = []
    names = ["app 1", "app 2", "router", "declared 1", "declared 2", "mounted"]
    layers = {name: noting(trace, name) for name in names}

    @subscriber("orders", layers=[layers["declared 1"], layers["declared 2"]])
    async def handle(body: bytes) -> None:
        trace.append("handler")

    router = Router(layers=[layers["router"]]).include(mount(handle, layers=[layers["mounted"]], **form))
    app = PyStream("shop", layers=[layers["app 1"], layers["app 2"]]).with_broker(MemoryBroker(), router)
    async with app.start() as running:
        await publish(running, b"1")
        await until(lambda: len(trace) == 2 * len(names) + 1)

    assert trace == [
        *(f"{name} begins" for name in names),
        "handler",
        *(f"{name}: ack()" for name in reversed(names)),
    ]


@pytest.mark.promise("LAYER-1")
@pytest.mark.anyio
async def test_a_router_without_layers_has_the_apps() -> None:
    """What is mounted on the app and what comes by a router both stand within the app's layers, and in no other's."""
    trace: list[str] = []

    @subscriber("direct")
    async def direct(body: bytes) -> None:
        trace.append("direct")

    @subscriber("routed")
    async def routed(body: bytes) -> None:
        trace.append("routed")

    app = PyStream("shop", layers=[noting(trace, "app")])
    app.with_broker(MemoryBroker(), direct, Router(layers=[noting(trace, "router")]).include(routed))
    async with app.start() as running:
        await publish(running, b"1", to="direct")
        await until(lambda: len(trace) == 3)
        await publish(running, b"1", to="routed")
        await until(lambda: len(trace) == 8)

    assert trace[:3] == ["app begins", "direct", "app: ack()"]
    assert trace[3:6] == ["app begins", "router begins", "routed"]


@pytest.mark.promise("LAYER-1")
@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS, ids=repr)
async def test_a_layer_may_suspend_on_every_form(form: dict[str, Any]) -> None:
    """It awaits before and after, and every delivery is settled by its own outcome."""

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        await anyio.lowlevel.checkpoint()
        outcome = await call_next(ctx)
        await anyio.lowlevel.checkpoint()
        return drop() if ctx.id == "2" else outcome

    items = [ScriptedDelivery(str(number), key=str(number)) for number in range(4)]
    async with rig(nothing, *items, layers=[layer], **form) as running:
        await running.ends(4)

    assert sorted(running.lines) == ["ack 0", "ack 1", "ack 3", "reject 2"]


class Counting:
    """A layer that is an object."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, ctx: Context, call_next: CallNext) -> Outcome:
        self.seen.append(ctx.id)
        return await call_next(ctx)

    async def method(self, ctx: Context, call_next: CallNext) -> Outcome:
        return await self(ctx, call_next)


async def _limited(limit: int, ctx: Context, call_next: CallNext) -> Outcome:
    return drop() if len(ctx.payload) > limit else await call_next(ctx)


@pytest.mark.promise("LAYER-1", "LAYER-12")
@pytest.mark.anyio
async def test_a_layer_may_be_any_async_callable() -> None:
    """Functions, methods, callable objects and partials are layers."""
    one, two = Counting(), Counting()
    layers: list[Any] = [one, two.method, partial(_limited, 2), partial(one)]
    async with rig(nothing, ScriptedDelivery("1"), ScriptedDelivery("2", b"{ }"), layers=layers) as running:
        await running.ends(2)

    assert running.lines == ["ack 1", "reject 2"]
    assert (one.seen, two.seen) == (["1", "1", "2"], ["1", "2"])


# What they see: an undecodable delivery, an error, a Settle.


@pytest.mark.promise("LAYER-2")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "item",
    [
        lambda: DelayableDelivery("1", b"{}"),
        lambda: DelayableDelivery("1", decode_error=DecodeError("no frame")),
    ],
    ids=["payload", "wire form"],
)
@pytest.mark.parametrize("converted", [None, ack(), retry_after(3)], ids=repr)
async def test_layers_see_what_cannot_be_read(item: Callable[[], ScriptedDelivery], converted: Outcome | None) -> None:
    """`call_next` raises `DecodeError`; a layer may decide, and what it lets through goes by the decode rule."""
    trace: list[str] = []

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        try:
            return await call_next(ctx)
        except DecodeError:
            if converted is None:
                raise

            return converted

    policy = FailurePolicy(error=retry(), decode=drop())
    layers = [noting(trace, "outer"), layer, noting(trace, "inner")]
    async with rig(handle_order, item(), policy=policy, layers=layers) as running:
        await running.ends(1)

    line = {"None": "reject 1", "ack()": "ack 1", "retry_after(3)": "retry_after 1"}[repr(converted)]
    assert running.lines == [line]
    assert trace[1:3] == ["inner begins", "inner: DecodeError"]
    assert trace[3] == ("outer: DecodeError" if converted is None else f"outer: {converted!r}")


@pytest.mark.promise("LAYER-2")
@pytest.mark.anyio
async def test_the_cause_of_an_unreadable_delivery_is_kept() -> None:
    """What the broker has chained to its error is there in the layer."""
    broken = DecodeError("no frame")
    broken.__cause__ = ValueError("magic")
    seen: list[BaseException | None] = []

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        try:
            return await call_next(ctx)
        except DecodeError as error:
            seen.append(error.__cause__)
            raise

    async with rig(nothing, ScriptedDelivery("1", decode_error=broken), layers=[layer]) as running:
        await running.ends(1)

    assert [repr(cause) for cause in seen] == ["ValueError('magic')"]


async def in_a_group(ctx: Context, call_next: CallNext) -> Outcome:
    """A layer that runs a task beside."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.lowlevel.checkpoint)
        outcome = await call_next(ctx)

    return outcome  # noqa: RET504  # for mypy: a group might swallow what is raised in it


@pytest.mark.promise("LAYER-2")
@pytest.mark.anyio
async def test_a_task_group_of_a_layer_hides_no_decode_error() -> None:
    """What cannot be read goes by the decode rule although the layer's task group has wrapped the error."""
    policy = FailurePolicy(error=retry(), decode=drop())
    async with rig(handle_order, ScriptedDelivery("1", b"{}"), policy=policy, layers=[in_a_group]) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]


@pytest.mark.promise("LAYER-2")
@pytest.mark.anyio
async def test_an_error_in_its_place_is_no_unreadable_delivery() -> None:
    """A layer that raises something else of its own fails the delivery like a handler."""

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        try:
            return await call_next(ctx)
        except DecodeError as error:
            raise KeyError from error

    policy = FailurePolicy(error=retry(), decode=drop())
    async with rig(handle_order, ScriptedDelivery("1", b"{}"), policy=policy, layers=[layer]) as running:
        await running.ends(1)

    assert running.lines == ["requeue 1"]


@pytest.mark.promise("LAYER-3")
@pytest.mark.anyio
@pytest.mark.parametrize("caught", [True, False], ids=["caught", "let through"])
async def test_layers_see_what_the_handler_raised(caught: bool) -> None:
    """`call_next` raises it; a layer may decide, and what it lets through goes by the error rule."""
    trace: list[str] = []

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        try:
            return await call_next(ctx)
        except KeyError:
            if caught:
                return ack()

            raise

    policy = FailurePolicy(error={KeyError: drop()})
    async with rig(
        failing, ScriptedDelivery("1"), policy=policy, layers=[layer, noting(trace, "inner"), passing]
    ) as running:
        await running.ends(1)

    assert running.lines == ["ack 1" if caught else "reject 1"]
    assert trace == ["inner begins", "inner: KeyError"]


@pytest.mark.promise("LAYER-3")
@pytest.mark.anyio
async def test_a_failure_that_a_layer_has_caught_was_read() -> None:
    """It ends the row of unreadable deliveries, which would stop the service."""

    async def handler(order: Order) -> None:
        raise KeyError

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        try:
            return await call_next(ctx)
        except KeyError:
            return ack()

    items = [ScriptedDelivery(str(number), b'{"id": 1}' if number == 2 else b"{}") for number in range(4)]
    async with rig(handler, *items, policy=FailurePolicy(decode_limit=3), layers=[layer]) as running:
        await running.ends(4)

    assert running.lines == ["reject 0", "reject 1", "ack 2", "reject 3"]
    assert running.failures == []


async def settling(body: bytes) -> None:
    raise Settle(retry_after(5))


async def settling_in_a_group(body: bytes) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(settling, body)


async def settling_layer(ctx: Context, call_next: CallNext) -> Outcome:
    await call_next(ctx)
    raise Settle(retry_after(5))


@pytest.mark.promise("LAYER-4")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("handler", "inner"),
    [(settling, []), (settling_in_a_group, []), (nothing, [settling_layer])],
    ids=["handler", "group", "inner layer"],
)
async def test_a_settle_arrives_as_an_outcome(handler: Callable[..., Any], inner: list[Layer]) -> None:
    """Layers around the one that raises it see no error."""
    trace: list[str] = []
    async with rig(handler, DelayableDelivery("1"), layers=[noting(trace, "outer"), *inner]) as running:
        await running.ends(1)

    assert trace == ["outer begins", "outer: retry_after(5)"]
    assert running.lines == ["retry_after 1"]


# What they may decide, and what they cannot undo.


@pytest.mark.promise("LAYER-5")
@pytest.mark.anyio
async def test_a_layer_may_decide_without_the_handler() -> None:
    """What it returns without going on is the outcome; nothing is decoded."""

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        return drop()

    async with rig(handle_order, ScriptedDelivery("1", b"{"), policy=FailurePolicy(decode=ack()), layers=[layer]) as r:
        await r.ends(1)

    assert r.lines == ["reject 1"]


@pytest.mark.promise("LAYER-5")
@pytest.mark.anyio
async def test_a_layer_that_raises_before_fails_the_delivery(caplog: pytest.LogCaptureFixture) -> None:
    """It goes by the error rule, as if the handler had raised, and the handler does not run."""
    runs: list[bytes] = []

    async def handler(body: bytes) -> None:
        runs.append(body)

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        raise KeyError

    policy = FailurePolicy(error={KeyError: drop()})
    async with rig(handler, ScriptedDelivery("1"), policy=policy, layers=[passing, layer]) as running:
        await running.ends(1)

    assert (running.lines, runs) == (["reject 1"], [])
    (record,) = caplog.records
    assert record.getMessage() == "orders: handler failed: message 1, attempt 1: KeyError; drop()"


async def breaking(ctx: Context, call_next: CallNext) -> Outcome:
    await call_next(ctx)
    raise KeyError


@pytest.mark.promise("LAYER-6")
@pytest.mark.anyio
@pytest.mark.parametrize("outcome", [None, drop(), retry_after(2)], ids=repr)
async def test_a_layer_that_raises_after_changes_nothing(
    outcome: Outcome | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The outcome stands, with an ERROR, and the layers around it see it."""
    trace: list[str] = []

    async def handler(body: bytes) -> Outcome | None:
        return outcome

    layers = [noting(trace, "outer"), breaking, passing]
    async with rig(handler, DelayableDelivery("1"), policy=FailurePolicy.strict(), layers=layers) as running:
        await running.ends(1)

    decided = outcome or ack()
    assert running.lines == [{"ack": "ack 1", "drop": "reject 1", "retry": "retry_after 1"}[decided.kind]]
    assert trace == ["outer begins", f"outer: {decided!r}"]
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == f"orders: layer failed: message 1: KeyError; the outcome stands: {decided!r}"


@pytest.mark.promise("LAYER-6")
@pytest.mark.anyio
async def test_what_an_inner_layer_has_decided_stands_too(caplog: pytest.LogCaptureFixture) -> None:
    """The outcome of a layer that has caught the handler's failure is as good as the handler's."""

    async def catching(ctx: Context, call_next: CallNext) -> Outcome:
        try:
            return await call_next(ctx)
        except KeyError:
            return drop()

    async with rig(failing, ScriptedDelivery("1"), layers=[breaking, catching]) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.promise("LAYER-6")
@pytest.mark.anyio
async def test_a_settle_raised_after_is_a_decision(caplog: pytest.LogCaptureFixture) -> None:
    """A layer that wants another outcome after all returns it or raises it in `Settle`."""

    async def layer(ctx: Context, call_next: CallNext) -> Outcome:
        await call_next(ctx)
        raise Settle(drop())

    async with rig(nothing, ScriptedDelivery("1"), layers=[layer]) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]
    assert not caplog.records


@pytest.mark.promise("LAYER-6")
@pytest.mark.anyio
async def test_a_reply_that_is_out_is_not_sent_again_because_of_a_layer() -> None:
    """A layer that raises after the reply was published has the delivery acknowledged all the same."""

    async def handler(body: bytes) -> bytes:
        return b"done"

    async with rig(handler, ScriptedDelivery("1"), layers=[breaking], reply_to="confirmed") as running:
        await running.ends(1)

    assert running.lines == ["publish confirmed done", "ack 1"]


@pytest.mark.promise("LAYER-7")
@pytest.mark.anyio
@pytest.mark.parametrize("goes_on", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("returned", [None, ack, [ack()]], ids=["None", "function", "list"])
async def test_a_layer_that_returns_no_outcome_is_named(
    returned: Any, goes_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails the delivery, or changes nothing where the handler has decided, and the ERROR says which layer it is."""

    async def forgetful(ctx: Context, call_next: CallNext) -> Any:
        if goes_on:
            await call_next(ctx)

        return returned

    policy = FailurePolicy(error={PyStreamError: drop()})
    async with rig(nothing, ScriptedDelivery("1"), policy=policy, layers=[passing, forgetful]) as running:
        await running.ends(1)

    assert running.lines == ["ack 1" if goes_on else "reject 1"]
    (record,) = caplog.records
    assert record.exc_info is not None
    text = str(record.exc_info[1])
    assert f"forgetful returned {type(returned).__name__}; return an outcome" in text


@pytest.mark.promise("LAYER-8")
@pytest.mark.anyio
async def test_a_layer_may_go_on_more_than_once() -> None:
    """The handler runs each time; what counts is what the last run brought."""
    runs: list[int] = []

    async def handler(body: bytes) -> None:
        runs.append(1)
        if len(runs) == 1:
            raise KeyError

    async def again(ctx: Context, call_next: CallNext) -> Outcome:
        try:
            return await call_next(ctx)
        except KeyError:
            return await call_next(ctx)

    async with rig(handler, ScriptedDelivery("1"), layers=[again]) as running:
        await running.ends(1)

    assert (running.lines, len(runs)) == (["ack 1"], 2)


@pytest.mark.promise("LAYER-8")
@pytest.mark.anyio
@pytest.mark.parametrize("between", [True, False], ids=["in a layer", "in the handler"])
async def test_an_outcome_does_not_outlive_a_second_run(between: bool) -> None:
    """A second run that fails is a failure, although the first has decided; also if it fails in an inner layer."""
    runs: list[int] = []

    def fail_the_second() -> None:
        runs.append(1)
        if len(runs) == 2:
            raise KeyError

    async def handler(body: bytes) -> None:
        if not between:
            fail_the_second()

    async def twice(ctx: Context, call_next: CallNext) -> Outcome:
        await call_next(ctx)
        return await call_next(ctx)

    async def guard(ctx: Context, call_next: CallNext) -> Outcome:
        if between:
            fail_the_second()

        return await call_next(ctx)

    policy = FailurePolicy(error={KeyError: drop()})
    layers = [twice, guard] if between else [twice]
    async with rig(handler, ScriptedDelivery("1"), policy=policy, layers=layers) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]
