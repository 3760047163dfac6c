"""What layers put into the headers, what they cost where there is none, and which are refused."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import pytest
from pystream import BatchContext, Context, Header, Outcome, PyStream, Router, mount, retry, retry_after, subscriber
from pystream._runtime import handling, pipeline
from pystream._runtime.layering import chain_of
from pystream.context import AfterSettle
from pystream.errors import ConfigurationError, RegistrationError
from pystream.layers import CallNext, Layer, with_layers
from pystream.memory import MemoryBroker

from tests.core.rig import rig
from tests.core.scripted import ScriptedBroker, ScriptedDelivery, ScriptedSource

pytestmark = pytest.mark.anyio


async def nothing(body: bytes) -> None: ...


async def of_batches(bodies: list[bytes]) -> None: ...


# Headers.


@pytest.mark.promise("LAYER-9")
async def test_enriched_headers_are_seen_within() -> None:
    """Inner layers, `Header` parameters and the handler's context see what a layer has put into `ctx.headers`."""
    seen: list[Any] = []

    async def enriching(ctx: Context, call_next: CallNext) -> Outcome:
        ctx.headers["X-Tenant"] = b"acme"
        del ctx.headers["old"]
        return await call_next(ctx)

    async def looking(ctx: Context, call_next: CallNext) -> Outcome:
        seen.append(ctx.headers["x-tenant"])
        return await call_next(ctx)

    async def handler(
        body: bytes,
        ctx: Context,
        tenant: Annotated[str, Header("x-tenant")],
        old: Annotated[str | None, Header("old")] = None,
    ) -> None:
        seen.extend([tenant, old, dict(ctx.headers)])

    item = ScriptedDelivery("1", headers={"old": b"1", "x-tenant": b"other"})
    async with rig(handler, item, layers=[enriching, looking]) as running:
        await running.ends(1)

    assert running.lines == ["ack 1"]
    assert seen == [b"acme", "acme", None, {"X-Tenant": b"acme"}]
    assert item.headers == {"old": b"1", "x-tenant": b"other"}


@pytest.mark.promise("LAYER-9")
async def test_enriched_headers_satisfy_a_missing_header() -> None:
    """A `Header` that the message lacks may come from a layer, without a context in the handler."""
    seen: list[str] = []

    async def enriching(ctx: Context, call_next: CallNext) -> Outcome:
        ctx.headers["x-tenant"] = b"acme"
        return await call_next(ctx)

    async def handler(body: bytes, tenant: Annotated[str, Header("X-TENANT")]) -> None:
        seen.append(tenant)

    async with rig(handler, ScriptedDelivery("1"), layers=[enriching]) as running:
        await running.ends(1)

    assert (running.lines, seen) == (["ack 1"], ["acme"])


@pytest.mark.promise("LAYER-9")
async def test_enriched_headers_leave_the_service_nowhere() -> None:
    """Replies, copies for another attempt and dead letters do not carry them."""

    async def enriching(ctx: Context, call_next: CallNext) -> Outcome:
        ctx.headers["x-tenant"] = b"acme"
        outcome = await call_next(ctx)
        return outcome if ctx.id == "reply" else retry()

    async def handler(body: bytes) -> bytes:
        return b"done"

    items = [
        ScriptedDelivery("reply", headers={"a": b"1"}),
        ScriptedDelivery("copied", headers={"a": b"1"}),
        ScriptedDelivery("buried", headers={"a": b"1", "x-pystream-retry-count": b"1"}),
    ]
    settings: dict[str, Any] = {"reply_to": "confirmed", "max_attempts": 2, "dead_letter": "dead"}
    async with rig(handler, *items, layers=[enriching], **settings) as running:
        await running.ends(3)

    by_destination = {sent.destination: sent for sent in running.broker.sent}
    assert set(by_destination) == {"confirmed", "orders", "dead"}
    assert not any("x-tenant" in sent.headers for sent in running.broker.sent)
    assert by_destination["orders"].headers["a"] == by_destination["dead"].headers["a"] == b"1"


@pytest.mark.promise("LAYER-9")
async def test_a_run_in_place_begins_with_the_original_headers() -> None:
    """The layers run again, over a fresh working copy, and see the attempt."""
    seen: list[tuple[int, bytes]] = []

    async def enriching(ctx: Context, call_next: CallNext) -> Outcome:
        ctx.headers["n"] = ctx.headers["n"] + b"+"
        seen.append((ctx.attempt, ctx.headers["n"]))
        return await call_next(ctx)

    async def handler(body: bytes) -> Outcome | None:
        return retry_after(1) if len(seen) == 1 else None

    source = ScriptedSource(retry="in_place")
    async with rig(handler, ScriptedDelivery("1", headers={"n": b"1"}), source=source, layers=[enriching]) as running:
        await running.timer()
        running.clock.advance(1)
        await running.ends(1)

    assert seen == [(1, b"1+"), (2, b"1+")]


# Nothing is paid without one.


@pytest.mark.promise("LAYER-10")
@pytest.mark.parametrize("layered", [False, True], ids=["without", "with"])
async def test_without_a_layer_nothing_is_paid(layered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No chain is put together, no context made, no header read; a publisher without layers is the broker's own."""
    made: list[str] = []

    def noting(name: str, original: Any) -> Any:
        def make(*args: Any) -> Any:
            made.append(name)
            return original(*args)

        return make

    monkeypatch.setattr(handling, "chain_of", noting("chain", chain_of))
    monkeypatch.setattr(pipeline, "Context", noting("context", Context))
    item = ScriptedDelivery("1")
    async with rig(nothing, item, layers=[passing] if layered else None) as running:
        await running.ends(1)

    assert made == (["chain", "context"] if layered else [])
    assert item.header_reads == 0
    publisher = ScriptedBroker()
    assert with_layers(publisher, ()) is publisher


# What is refused.


async def passing(ctx: Context, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


async def unannotated(ctx, call_next):  # type: ignore[no-untyped-def]  # which means single deliveries
    return await call_next(ctx)


async def batches_only(ctx: BatchContext, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


async def both(ctx: Context | BatchContext, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


async def either(ctx: AfterSettle, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


class Layers:
    async def __call__(self, ctx: BatchContext, call_next: CallNext) -> Outcome:
        return await call_next(ctx)

    async def single(self, ctx: Context, call_next: CallNext) -> Outcome:
        return await call_next(ctx)


async def _configured(size: int, ctx: BatchContext, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


@pytest.mark.promise("LAYER-11")
@pytest.mark.parametrize(
    ("layer", "singles", "batches"),
    [
        (passing, True, False),
        (unannotated, True, False),
        (batches_only, False, True),
        (both, True, True),
        (Layers(), False, True),
        (Layers().single, True, False),
        (partial(_configured, 3), False, True),
    ],
    ids=["Context", "none", "BatchContext", "both", "object", "method", "partial"],
)
@pytest.mark.parametrize("level", ["app", "router", "declaration", "mount"])
def test_a_layer_that_does_not_fit_is_refused(layer: Layer, singles: bool, batches: bool, level: str) -> None:
    """At registration, naming the layer and the handler, whatever level the layer was given at."""

    def registers(batch: bool) -> None:
        @subscriber("orders", layers=[layer] if level == "declaration" else None)
        async def single(body: bytes) -> None: ...

        @subscriber("orders", layers=[layer] if level == "declaration" else None, batch=3)
        async def together(bodies: list[bytes]) -> None: ...

        mounted = mount(together if batch else single, layers=[layer] if level == "mount" else None)
        router = Router(layers=[layer] if level == "router" else None).include(mounted)
        PyStream("shop", layers=[layer] if level == "app" else None).with_broker(MemoryBroker(), router)

    for batch, fits in ((False, singles), (True, batches)):
        if fits:
            registers(batch)
            continue

        with pytest.raises(RegistrationError) as refusal:
            registers(batch)

        name = getattr(getattr(layer, "func", layer), "__qualname__", "Layers")
        assert f"{name} understands {'single deliveries' if batch else 'batches'} alone" in str(refusal.value)
        assert ("together" if batch else "single") in str(refusal.value)


def plain(ctx: Context, call_next: CallNext) -> None: ...


async def of_one(ctx: Context) -> Outcome:
    raise AssertionError


async def generating(ctx: Context, call_next: CallNext) -> Any:
    yield


async def with_keyword(ctx: Context, call_next: CallNext, *, name: str) -> Outcome:
    raise AssertionError


@pytest.mark.promise("LAYER-12")
@pytest.mark.parametrize(
    "layers",
    [[plain], [of_one], [generating], [with_keyword], [Layers], ["passing"], [None], passing, {passing}],
    ids=["def", "one parameter", "generator", "keyword", "class", "text", "None", "no list", "set"],
)
@pytest.mark.parametrize("setting", ["layers", "publish_layers"])
def test_what_is_no_layer_is_refused(layers: Any, setting: str) -> None:
    """At every level, naming who was given it, the setting, and how one is written."""
    expected = "an? `async def|give a list of `async def` functions|write `async def layer"
    given: Any = {setting: layers}
    with pytest.raises(ConfigurationError, match=f"PyStream.*{setting}.*({expected})"):
        PyStream("shop", **given)

    with pytest.raises(ConfigurationError, match=f"Router.*{setting}.*({expected})"):
        Router(**given)

    with pytest.raises(RegistrationError, match=f"nothing: mount.*{setting}.*({expected})"):
        PyStream("shop").with_broker(MemoryBroker(), mount(nothing, "orders", **given))

    declared = subscriber("orders", **given)(partial(nothing))
    with pytest.raises(RegistrationError, match=f"nothing: @subscriber.*{setting}.*({expected})"):
        PyStream("shop").with_broker(MemoryBroker(), mount(declared))
