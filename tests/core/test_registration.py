"""What is refused at registration, in which words; and how declarations, mounts and routers come together."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, Any, cast

import pytest
from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pystream import (
    Backoff,
    Context,
    FailurePolicy,
    Header,
    Out,
    Outcome,
    PyStream,
    Router,
    State,
    by_key,
    dead_letter,
    mount,
    subscriber,
)
from pystream._runtime.registration import Registered, Scope, register
from pystream.errors import ConfigurationError, RegistrationError
from pystream.memory import MemoryBroker, MemorySubscription
from pystream.router import as_mount

from tests.core.scripted import ScriptedBroker, ScriptedSource

if TYPE_CHECKING:
    from decimal import Decimal


class Order(BaseModel):
    id: int


class Confirmed(BaseModel):
    order_id: int


class Incomplete(BaseModel):
    """Its annotation names what is defined nowhere."""

    part: Undefined  # type: ignore[name-defined]  # noqa: F821  # the point of the rows


class Opaque:
    """Nothing that pydantic knows."""


async def confirm(order: Order) -> None: ...


async def other(order: Order) -> None: ...


async def replying(order: Order) -> Confirmed | Outcome: ...


async def no_payload(context: Context) -> None: ...


async def no_parameters() -> None: ...


async def two_payloads(order: Order, customer: dict[str, str], context: Context) -> None: ...


async def unresolvable(order: Order, price: Decimal) -> None: ...


async def variadic(order: Order, *rest: Order) -> None: ...


async def variadic_by_name(order: Order, **rest: Order) -> None: ...


async def unannotated(order, context: Context) -> None: ...  # type: ignore[no-untyped-def]  # the point of the row


async def opaque_payload(order: Opaque) -> None: ...


async def incomplete_payload(order: Incomplete) -> None: ...


async def incomplete_reply(order: Order) -> Incomplete: ...


async def opaque_header(order: Order, region: Annotated[Opaque, Header("region")]) -> None: ...


async def opaque_out(order: Order, out: Out[Opaque]) -> None: ...


async def opaque_reply(order: Order) -> Opaque: ...


async def with_state(order: Order, stock: State[Opaque]) -> None: ...


async def generator(order: Order) -> AsyncIterator[Order]:
    yield order


class Handling:
    """Its instances are handlers."""

    async def __call__(self, order: Order) -> None: ...


@subscriber("orders", workers=4, name="billing", reply_to=None)
async def declared(order: Order) -> None: ...


def _untyped(value: object) -> Any:
    """What a type checker would refuse already."""
    return value


def _on_memory(*handlers: Any, **app: Any) -> Callable[[], object]:
    return lambda: PyStream("shop", **app).with_broker(MemoryBroker(), *handlers)


def _bare(handler: Callable[..., Any]) -> Callable[[], object]:
    return _on_memory(mount(handler, "orders"))


def _with(handler: Callable[..., Any] = confirm, **settings: Any) -> Callable[[], object]:
    return _on_memory(mount(handler, "orders", **settings))


def _pydantic_says(annotation: Any) -> str:
    """The reason in pydantic's own words, which differ from version to version."""
    try:
        _ = TypeAdapter(annotation).validator.validate_json
    except PydanticUserError as error:
        return str(error).splitlines()[0].replace(__name__, "test_registration")

    raise AssertionError(f"pydantic knows {annotation!r}")


_NO_SCHEMA = _pydantic_says(Opaque)
_NO_NAME = _pydantic_says(Incomplete)

OF_PYDANTIC = (_NO_SCHEMA, _NO_NAME)
"""The parts of the texts below that are pydantic's."""

REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "no payload": (
        _bare(no_payload),
        "no_payload has no parameter for the payload (its parameters: context); "
        "add one, annotated with a type that pydantic can validate, or with bytes",
    ),
    "no parameters": (
        _bare(no_parameters),
        "no_parameters has no parameter for the payload (its parameters: none); "
        "add one, annotated with a type that pydantic can validate, or with bytes",
    ),
    "two payloads": (
        _bare(two_payloads),
        "two_payloads: the parameters 'order' and 'customer' could each be the payload, and a handler has one; "
        "annotate the others as a Context, State[T], Header, Out[T] or what the source offers",
    ),
    "unresolvable annotation": (
        _bare(unresolvable),
        "unresolvable: the annotation of 'price' in module 'test_registration' cannot be resolved "
        "(name 'Decimal' is not defined); define or import the name at the top level of that module, "
        "outside `if TYPE_CHECKING`",
    ),
    "positional rest": (
        _bare(variadic),
        "variadic: the parameter *rest cannot be filled; name each parameter",
    ),
    "keyword rest": (
        _bare(variadic_by_name),
        "variadic_by_name: the parameter **rest cannot be filled; name each parameter",
    ),
    "no annotation": (
        _bare(unannotated),
        "unannotated: the parameter 'order' has no annotation; say what it should receive",
    ),
    "payload that pydantic does not know": (
        _bare(opaque_payload),
        "opaque_payload: the parameter 'order' is neither a payload (pydantic cannot validate "
        f"<class 'test_registration.Opaque'>: {_NO_SCHEMA}) nor anything that pystream or the source offers",
    ),
    "payload with a name that is not defined": (
        _bare(incomplete_payload),
        "incomplete_payload: the parameter 'order' is neither a payload (pydantic cannot validate "
        f"<class 'test_registration.Incomplete'>: {_NO_NAME}) "
        "nor anything that pystream or the source offers",
    ),
    "header that pydantic does not know": (
        _bare(opaque_header),
        "opaque_header: the parameter 'region': pydantic cannot validate "
        f"<class 'test_registration.Opaque'>: {_NO_SCHEMA}",
    ),
    "publisher of what pydantic does not know": (
        _bare(opaque_out),
        "opaque_out: the parameter 'out': <class 'test_registration.Opaque'> cannot be published: "
        "pydantic knows no JSON form of it",
    ),
    "state without one": (
        _bare(with_state),
        "with_state: the parameter 'stock' asks for the app's state, and the app has none; give PyStream(state=...)",
    ),
    "generator": (
        _bare(generator),
        "generator is a generator, and nothing would run it; use a `def` or an `async def` that returns one value, "
        "and publish several through a parameter Out[T]",
    ),
    "class": (_bare(Handling), "Handling is a class; mount an instance that can be called, or a function"),
    "function whose signature cannot be read": (
        _bare({}.update),
        "dict.update: its signature cannot be read; wrap it in a function",
    ),
    "max_attempts": (_with(max_attempts=0), "confirm: max_attempts=0; give a whole number of 1 or more"),
    "max_delayed": (_with(max_delayed=True), "confirm: max_delayed=True; give a whole number of 1 or more"),
    "dead_letter": (_with(dead_letter=""), "confirm: dead_letter=''; give the name of a destination"),
    "retry_to": (_with(retry_to=1), "confirm: retry_to=1; give the name of a destination"),
    "policy of dead letters": (
        _with(on_failure=FailurePolicy(error={ValueError: dead_letter("odd")})),
        "confirm: its failure policy says error={ValueError: dead_letter('odd')}, and the mount declares no dead "
        "letters; give dead_letter=, or choose another outcome",
    ),
    "layers": (
        _with(layers=print),
        "confirm: mount: layers=<built-in function print>; give a list of `async def` functions",
    ),
    "layer": (
        _with(layers=[len]),
        "confirm: mount: layers holds <built-in function len>, which is no layer; "
        "write `async def layer(ctx, call_next)`, and give the function itself",
    ),
    "publish layer": (
        _with(publish_layers=[len]),
        "confirm: mount: publish_layers holds <built-in function len>, which is no layer; "
        "write `async def layer(outgoing, call_next)`, and give the function itself",
    ),
    "layers of the app": (
        lambda: PyStream("shop", layers=[cast("Any", len)]),
        "PyStream: layers holds <built-in function len>, which is no layer; "
        "write `async def layer(ctx, call_next)`, and give the function itself",
    ),
    "layers of a router": (
        lambda: Router(layers=[cast("Any", None)]),
        "Router: layers holds None, which is no layer; "
        "write `async def layer(ctx, call_next)`, and give the function itself",
    ),
    "no workers": (_with(workers=0), "confirm: workers=0; give a whole number of 1 or more, or by_key(n)"),
    "no threads": (_with(threads=0), "confirm: threads=0; give a whole number of 1 or more, or by_key(n)"),
    "threads that are no number": (
        _with(threads=2.0),
        "confirm: threads=2.0; give a whole number of 1 or more, or by_key(n)",
    ),
    "threads that are a truth": (
        _with(threads=True),
        "confirm: threads=True; give a whole number of 1 or more, or by_key(n)",
    ),
    "threads by no key": (
        _with(threads=by_key(0)),
        "confirm: threads=by_key(0); give a whole number of 1 or more, or by_key(n)",
    ),
    "workers and threads": (
        _with(workers=2, threads=by_key(4)),
        "confirm: workers=2 and threads=by_key(4) exclude each other; "
        "give workers= for tasks on the app's loop, or threads= for threads with loops of their own",
    ),
    "workers that are no number": (
        _with(workers="4"),
        "confirm: workers='4'; give a whole number of 1 or more, or by_key(n)",
    ),
    "workers that are a truth": (
        _with(workers=True),
        "confirm: workers=True; give a whole number of 1 or more, or by_key(n)",
    ),
    "no lanes": (
        _with(workers=by_key(0)),
        "confirm: workers=by_key(0); give a whole number of 1 or more, or by_key(n)",
    ),
    "reply without a destination": (
        _with(replying),
        "replying returns Confirmed, and nothing says where to publish it; "
        "give reply_to=, or annotate the return as None or Outcome",
    ),
    "destination without a reply": (
        _with(reply_to="confirmed"),
        "confirm has reply_to='confirmed', and its return annotation leaves nothing to publish; "
        "annotate the type of the reply",
    ),
    "empty destination": (
        _with(replying, reply_to=""),
        "replying: reply_to=''; give the name of a destination",
    ),
    "reply that pydantic does not know": (
        _with(opaque_reply, reply_to="confirmed"),
        "opaque_reply: the reply <class 'test_registration.Opaque'> cannot be published: "
        "pydantic knows no JSON form of it",
    ),
    "reply with a name that is not defined": (
        _with(incomplete_reply, reply_to="confirmed"),
        "incomplete_reply: the reply <class 'test_registration.Incomplete'> cannot be published: "
        "pydantic knows no JSON form of it",
    ),
    "empty name": (_with(name=""), "confirm: name=''; give a text that is not empty"),
    "name taken": (
        _on_memory(mount(confirm, "orders", name="billing"), mount(other, "refunds", name="billing")),
        "other: the name 'billing' is taken on this broker; give another name=",
    ),
    "name taken by a source": (
        _on_memory(mount(confirm, "orders"), mount(other, "refunds", name="orders")),
        "other: the name 'orders' is taken on this broker; give another name=",
    ),
    "mounted twice": (
        _on_memory(mount(confirm, "orders"), mount(confirm, "orders")),
        "confirm is mounted twice on 'orders'; tell the two apart with name=",
    ),
    "mounted twice behind another": (
        _on_memory(mount(other, "orders"), mount(confirm, "orders"), mount(confirm, "orders")),
        "confirm is mounted twice on 'orders'; tell the two apart with name=",
    ),
    "no source": (
        _on_memory(mount(confirm)),
        "confirm has no source: give one to @subscriber(...) or to mount(handler, source)",
    ),
    "name that the broker refuses": (
        _on_memory(mount(confirm, "")),
        "confirm: MemorySubscription: a name on the memory broker has at least one character, and this one is empty",
    ),
    "source of another broker": (
        lambda: PyStream("shop").with_broker(ScriptedBroker(), mount(confirm, MemorySubscription("orders"))),
        "confirm is mounted on scripted:// and reads from MemorySubscription(name='orders'); "
        "this broker takes ScriptedSource, or a bare name",
    ),
    "source said twice": (
        _on_memory(mount(declared, "refunds")),
        "declared: @subscriber says source='orders' and mount says source='refunds'; say it in one place",
    ),
    "workers said twice": (
        _on_memory(mount(declared, workers=8)),
        "declared: @subscriber says workers=4 and mount says workers=8; say it in one place",
    ),
    "router in a router": (
        lambda: Router().include(_untyped(Router())),
        "a Router in a Router is not there yet; give both to with_broker",
    ),
    "decorator without parentheses": (
        lambda: subscriber(_untyped(confirm)),
        "confirm: @subscriber needs parentheses; write @subscriber(source), or @subscriber()",
    ),
    "declared twice": (
        lambda: subscriber("refunds")(declared),
        "declared is declared already, for 'orders'; to mount one handler on two sources, use mount(handler, source)",
    ),
    "handler that was not declared": (
        _on_memory(confirm),
        "confirm is no handler: decorate it with @subscriber(...), or wrap it in mount(...)",
    ),
    "no handler at all": (
        _on_memory("confirm"),
        "'confirm' is no handler: decorate it with @subscriber(...), or wrap it in mount(...)",
    ),
    "mount of what cannot be called": (
        lambda: mount(_untyped("confirm"), "orders"),
        "mount('confirm') is given no function; give an `async def` function, a method, a partial or a callable object",
    ),
    "handler in place of a broker": (
        lambda: PyStream("shop").with_broker(_untyped(declared)),
        f"with_broker was given {declared!r}, which is no broker; give the broker first, then the handlers",
    ),
    "two brokers without labels": (
        lambda: PyStream("shop").with_broker(MemoryBroker("a")).with_broker(MemoryBroker("b")),
        "two brokers of type MemoryBroker, and neither has a label; give each its own: with_broker(..., label=...)",
    ),
    "two brokers of one label": (
        lambda: PyStream("shop").with_broker(MemoryBroker(), label="eu").with_broker(MemoryBroker(), label="eu"),
        "two brokers of type MemoryBroker, and both have the label 'eu'; "
        "give each its own: with_broker(..., label=...)",
    ),
}
"""Each refusal: how to come by it, and its whole text."""


@pytest.mark.promise("HANDLER-6", "HANDLER-10")
@pytest.mark.parametrize("row", REFUSALS)
def test_refusal_says_what_and_what_to_do(row: str) -> None:
    """What cannot work is refused at registration, in the words of the table."""
    provoke, text = REFUSALS[row]
    with pytest.raises(ConfigurationError) as caught:
        provoke()

    assert str(caught.value).replace(__name__, "test_registration") == text


@pytest.mark.promise("HANDLER-6")
def test_all_refusals_of_one_call_come_together() -> None:
    """One with_broker names every handler that cannot be mounted, and mounts none."""
    app = PyStream("shop")
    router = Router().include(mount(no_payload, "orders"))
    with pytest.raises(RegistrationError) as caught:
        app.with_broker(
            MemoryBroker(), mount(generator, "orders"), mount(confirm, "orders"), router, mount(variadic, "orders")
        )

    assert len(caught.value.refusals) == 3
    assert [text.split()[0].rstrip(":") for text in caught.value.refusals] == ["generator", "no_payload", "variadic"]
    assert str(caught.value).splitlines()[0] == "3 refusals:"
    assert str(caught.value).splitlines()[1:] == [f"- {text}" for text in caught.value.refusals]
    app.with_broker(MemoryBroker(), mount(confirm, "orders"))


def _registered(*handlers: Any, policy: FailurePolicy | None = None) -> list[Registered]:
    mounts = [(as_mount(handler), Scope(policy=policy or FailurePolicy())) for handler in handlers]
    return register(ScriptedBroker(), None, mounts, has_state=False)


@pytest.mark.promise("HANDLER-7")
def test_a_declared_handler_stays_a_plain_function() -> None:
    """The decorator returns the function itself, callable as before."""

    async def handler(order: Order) -> int:
        return order.id

    assert subscriber("orders")(handler) is handler
    with pytest.raises(StopIteration) as stop:
        handler(Order(id=7)).send(None)

    assert stop.value.value == 7


@pytest.mark.promise("HANDLER-7")
def test_a_mount_fills_what_the_declaration_left_open() -> None:
    """Decorator and mount make one set of settings; the same said twice is no contradiction."""

    @subscriber(workers=3)
    async def handler(order: Order) -> Confirmed: ...

    (registered,) = _registered(mount(handler, "orders", workers=3, reply_to="confirmed", name="billing"))
    assert (registered.source, registered.workers, registered.reply_to) == (ScriptedSource("orders"), 3, "confirmed")
    assert (registered.mounting.name, registered.mounting.concurrency) == ("billing", 3)
    assert registered.mounting.payload_type is Order


@pytest.mark.promise("HANDLER-7")
def test_one_handler_can_be_mounted_twice() -> None:
    """Two mounts of one handler, on two sources or under two names, are two subscriptions."""

    @subscriber()
    async def handler(order: Order) -> None: ...

    names = [
        item.mounting.name
        for item in _registered(
            mount(handler, "orders"), mount(handler, "refunds"), mount(handler, "orders", name="audit")
        )
    ]
    assert names == ["orders", "refunds", "audit"]


@pytest.mark.promise("HANDLER-7")
def test_subscriptions_are_named_after_their_source() -> None:
    """The first handler of a source has its name, a second one its own behind it."""
    names = [item.mounting.name for item in _registered(mount(confirm, "orders"), mount(other, "orders"))]
    assert names == ["orders", "orders/other"]


@pytest.mark.promise("DISPATCH-1")
@pytest.mark.parametrize(
    ("workers", "concurrency"),
    [(None, 1), (1, 1), (by_key(1), 1), (16, 16), (by_key(2), 5), (by_key(16), 33)],
    ids=str,
)
def test_the_broker_is_told_how_many_deliveries_are_held(workers: Any, concurrency: int) -> None:
    """A mounting's concurrency is the bound of the dispatch form: 1, n or 2n + 1."""
    (registered,) = _registered(mount(confirm, "orders", workers=workers))
    assert registered.mounting.concurrency == concurrency


@pytest.mark.promise("HANDLER-7")
def test_partials_of_declared_handlers_keep_their_declaration() -> None:
    """A partial of a declared handler is mounted on the declared source."""

    @subscriber("orders")
    async def handler(order: Order, factor: int) -> None: ...

    (registered,) = _registered(functools.partial(handler, factor=2))
    assert registered.source.name == "orders"


@pytest.mark.promise("RETRY-2")
def test_the_innermost_policy_counts() -> None:
    """A policy of the mount goes before the declaration's, that before the router's and the app's."""
    app, router, decorator, at_mount = (FailurePolicy(error=Backoff(initial=n)) for n in (1, 2, 3, 4))

    @subscriber("orders")
    async def open_handler(order: Order) -> None: ...

    @subscriber("orders", on_failure=decorator)
    async def own(order: Order) -> None: ...

    service = PyStream("shop", on_failure=app)
    mounts = [
        pair
        for item in (
            open_handler,
            Router().include(open_handler),
            Router(on_failure=router).include(open_handler, own, mount(own, on_failure=at_mount)),
        )
        for pair in service._mounts(item)
    ]
    found = [register(ScriptedBroker(), None, [pair], has_state=False)[0].policy for pair in mounts]
    assert found == [app, app, router, decorator, at_mount]
