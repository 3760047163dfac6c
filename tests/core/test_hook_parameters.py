"""What a function for a start or a stop is given besides the event, and what it cannot be given."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel
from pystream import Context, Header, Out, PyStream, State, mount
from pystream.errors import BrokerClosed, ConfigurationError, PyStreamError, RegistrationError
from pystream.hookspecs import ServiceEvent
from pystream.memory import MemoryBroker
from pystream.plugins import validate_function
from pystream.protocols import Outgoing
from pystream.subscriber import Mount

from tests.core.lifecycle.support import Journal, TellingBroker, failed_start

FIRST, SECOND = "after_startup", "on_shutdown"
"""The hooks that run while the brokers are connected."""

FOUR = ["on_startup", FIRST, SECOND, "after_shutdown"]


class Stock:
    """What a service holds."""


class Order(BaseModel):
    id: int


class Opaque:
    """Nothing that pydantic knows."""


class OtherBroker(MemoryBroker):
    """A broker of another type."""


class Received:
    """What comes to a handler."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self._came = anyio.Event()

    def mounted(self, source: str) -> Mount:
        return mount(self._handle, source)

    async def one(self) -> None:
        await self._came.wait()

    async def _handle(self, payload: bytes) -> None:
        self.payloads.append(payload)
        self._came.set()


async def run(app: PyStream) -> None:
    """Start the service and stop it."""
    with anyio.fail_after(10):
        async with app.start():
            await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
@pytest.mark.promise("SDK-40")
@pytest.mark.parametrize("hook", FOUR)
async def test_state_is_given_at_every_step(hook: str) -> None:
    """Each of the four functions gets what `PyStream(state=...)` opened, while it is open."""
    journal = Journal()
    stock = Stock()

    async def opened() -> AsyncIterator[Stock]:
        yield stock
        journal("closed")

    app = PyStream("shop", state=opened).with_broker(MemoryBroker())

    def plain(state: State[Stock]) -> None:
        journal(f"plain {state is stock}")

    async def asynchronous(event: ServiceEvent, *, state: State[Any]) -> None:
        await anyio.lowlevel.checkpoint()
        journal(f"async {event.title} {state is stock}")

    getattr(app, hook)(plain)
    getattr(app, hook)(asynchronous)
    await run(app)

    calls = ["plain True", "async shop True"]
    assert journal.lines == [*(calls[::-1] if "shutdown" in hook else calls), "closed"]


@pytest.mark.anyio
@pytest.mark.promise("SDK-40")
@pytest.mark.parametrize("hook", [FIRST, SECOND])
async def test_publisher_is_given_while_the_brokers_are_connected(hook: str) -> None:
    """after_startup and on_shutdown get a live publisher of the app's one broker; values are encoded by its type."""
    orders = Received()
    app = PyStream("shop", state=Stock()).with_broker(MemoryBroker(), orders.mounted("shop.orders"))

    async def announce(out: Out[Order], state: State[Stock], event: ServiceEvent) -> None:
        with pytest.raises(PyStreamError, match="cannot be encoded"):
            await out.publish("text", "shop.orders")  # type: ignore[arg-type]  # what the type refuses

        await out.publish(Order(id=5), f"{event.title}.orders")
        await orders.one()

    getattr(app, hook)(announce)
    await run(app)

    assert orders.payloads == [b'{"id":5}']


@pytest.mark.anyio
@pytest.mark.promise("SDK-40")
async def test_the_parameters_may_come_in_every_form() -> None:
    """Methods, partials, callable objects, positional-only and keyword-only parameters are filled like a handler's."""
    seen: list[str] = []
    stock = Stock()

    class Warm:
        async def method(self, stock: State[Stock], /, *, event: ServiceEvent) -> None:
            seen.append(f"method {event.version}")

        def __call__(self, event: ServiceEvent, stock: State[Stock]) -> None:
            seen.append(f"object {event.version}")

    def named(name: str, stock: State[Stock], *, limit: int) -> None:
        seen.append(f"{name} {limit}")

    def keyword(*, event: ServiceEvent) -> None:
        seen.append(f"keyword {event.version}")

    def wrapping(stock: State[Stock]) -> Awaitable[None]:
        return Warm().method(stock, event=ServiceEvent(title="", version="inner"))

    app = PyStream("shop", version="7", state=stock)
    for fn in (Warm().method, Warm(), functools.partial(named, "partial", limit=3), keyword, wrapping):
        app.on_startup(fn)

    await run(app)
    assert seen == ["method 7", "object 7", "partial 3", "keyword 7", "method inner"]


@pytest.mark.anyio
@pytest.mark.promise("SDK-41")
@pytest.mark.parametrize("hook", [FIRST, SECOND])
@pytest.mark.parametrize("by_class", [False, True])
async def test_one_of_several_brokers_is_named(hook: str, by_class: bool) -> None:
    """With several brokers the label or the class behind the type says whose publisher is meant."""
    here, there = Received(), Received()
    app = PyStream("shop").with_broker(MemoryBroker(), here.mounted("orders"), label="here")
    app.with_broker(OtherBroker(), there.mounted("orders"), label="there")

    async def by_label(out: Annotated[Out[Order], "there"]) -> None:
        await out.publish(Order(id=5), "orders")
        await there.one()

    async def by_type(out: Annotated[Out[Order], OtherBroker]) -> None:
        await out.publish(Order(id=5), "orders")
        await there.one()

    getattr(app, hook)(by_type if by_class else by_label)
    await run(app)

    assert (here.payloads, there.payloads) == ([], [b'{"id":5}'])


@pytest.mark.anyio
@pytest.mark.promise("SDK-42")
async def test_publish_layers_of_the_app_go_around_what_hooks_publish() -> None:
    """What a function for a start or a stop publishes goes through the app's publish layers."""
    broker = MemoryBroker()
    sent: list[str] = []

    async def layer(outgoing: Outgoing, call_next: Callable[[Outgoing], Awaitable[None]]) -> None:
        sent.append(outgoing.destination)
        await call_next(outgoing)

    app = PyStream("shop", publish_layers=[layer]).with_broker(broker)

    @app.after_startup
    async def begin(out: Out[bytes]) -> None:
        await out.publish(b"1", "begun")

    @app.on_shutdown
    async def end(out: Out[bytes]) -> None:
        await out.publish(b"1", "ended")

    await run(app)
    assert sent == ["begun", "ended"]


@pytest.mark.anyio
@pytest.mark.promise("SDK-42")
async def test_a_publisher_kept_by_a_hook_is_closed_with_its_broker() -> None:
    """A publisher given to a hook is the broker's own, and raises once that is closed."""
    kept: list[Out[bytes]] = []
    app = PyStream("shop").with_broker(MemoryBroker())
    app.on_shutdown(_keeping(kept))
    await run(app)

    with pytest.raises(BrokerClosed):
        await kept[0].publish(b"1", "orders")


def _keeping(kept: list[Out[bytes]]) -> Callable[..., None]:
    def keep(out: Out[bytes]) -> None:
        kept.append(out)

    return keep


@pytest.mark.anyio
@pytest.mark.promise("SDK-43")
@pytest.mark.parametrize("hook", FOUR)
async def test_state_of_another_class_refuses_the_start(hook: str) -> None:
    """An open state that is not what a hook asks for is refused before any hook runs and anything connects."""
    journal = Journal()
    app = PyStream("shop", state=lambda: 5).with_broker(TellingBroker(journal, "a"))

    def wants(stock: State[Stock]) -> None: ...

    getattr(app, hook)(wants)
    app.on_startup(journal.noting("on_startup"))
    failure = await failed_start(app.start())

    assert (failure.step, failure.errors[0].__class__) == ("on_startup", RegistrationError)
    assert str(failure.errors[0]) == (
        f"{__name__}.{wants.__qualname__}: the parameter 'stock' asks for State[Stock], and the app's state is a int"
    )
    assert journal.lines == []


@pytest.mark.anyio
@pytest.mark.promise("SDK-43")
@pytest.mark.parametrize("hook", FOUR)
async def test_state_whose_class_is_known_only_when_open_is_accepted(hook: str) -> None:
    """A state of the class, or of a subclass, or of a generic, is given."""
    seen: list[object] = []

    class Big(Stock): ...

    big = Big()
    app = PyStream("shop", state=lambda: big)

    def of_class(stock: State[Stock]) -> None:
        seen.append(stock)

    def generic(stock: State[dict[str, int]]) -> None:  # what a generic holds is not looked at
        seen.append(stock)

    getattr(app, hook)(of_class)
    getattr(app, hook)(generic)
    await run(app)
    assert seen == [big, big]


def _stock(stock: State[Stock]) -> None: ...
def _out(out: Out[Order]) -> None: ...
def _out_of_asia(event: ServiceEvent, out: Annotated[Out[Order], "asia"]) -> None: ...
def _out_of_memory(out: Annotated[Out[Any], MemoryBroker]) -> None: ...
def _opaque(out: Out[Opaque]) -> None: ...
def _context(context: Context) -> None: ...
def _header(event: ServiceEvent, region: Annotated[str, Header("region")]) -> None: ...
def _payload(order: Order, event: ServiceEvent) -> None: ...
def _batch(orders: list[Order]) -> None: ...
def _open(event: ServiceEvent, more) -> None: ...  # type: ignore[no-untyped-def]  # the point of the row


def _on(hook: str, fn: Callable[..., Any], **options: Any) -> Callable[[], object]:
    return lambda: getattr(PyStream("shop", **options), hook)(fn)


def _started(hook: str, fn: Callable[..., Any], *labels: str) -> Callable[[], object]:
    def start() -> object:
        app = PyStream("shop")
        getattr(app, hook)(fn)
        for label in labels:
            app.with_broker(MemoryBroker(), label=label)

        return app.start()

    return start


_ASKS = "asks for a publisher"
_NAMED = "name one by its label or class: Annotated[Out[T], label]"
_CALLED_FOR_NONE = "is called for no delivery; it takes the event (ServiceEvent)"

REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "state without one": (
        _on("on_startup", _stock),
        "test_hook_parameters._stock: the parameter 'stock' asks for the app's state, and the app has none; "
        "give PyStream(state=...)",
    ),
    "publisher before the brokers connect": (
        _on("on_startup", _out),
        f"test_hook_parameters._out: the parameter 'out' {_ASKS}, and on_startup runs before the brokers connect; "
        "use after_startup",
    ),
    "publisher after the brokers are closed": (
        _on("after_shutdown", _out),
        f"test_hook_parameters._out: the parameter 'out' {_ASKS}, and after_shutdown runs when the brokers are closed; "
        "use on_shutdown",
    ),
    "publisher of what pydantic does not know": (
        _on("on_shutdown", _opaque),
        "test_hook_parameters._opaque: the parameter 'out': <class 'test_hook_parameters.Opaque'> cannot be published: "
        "pydantic knows no JSON form of it",
    ),
    "context of no delivery": (
        _on("on_shutdown", _context),
        "test_hook_parameters._context: the parameter 'context' (Context) cannot be filled, "
        f"since on_shutdown {_CALLED_FOR_NONE}, State[T] and Out[T]",
    ),
    "header of no delivery": (
        _on("after_startup", _header),
        "test_hook_parameters._header: the parameter 'region' (Annotated[str, Header(name='region')]) "
        f"cannot be filled, since after_startup {_CALLED_FOR_NONE}, State[T] and Out[T]",
    ),
    "payload of no delivery": (
        _on("on_startup", _payload),
        "test_hook_parameters._payload: the parameter 'order' (Order) cannot be filled, "
        f"since on_startup {_CALLED_FOR_NONE} and State[T]",
    ),
    "batch of no deliveries": (
        _on("after_shutdown", _batch),
        "test_hook_parameters._batch: the parameter 'orders' (list[test_hook_parameters.Order]) cannot be filled, "
        f"since after_shutdown {_CALLED_FOR_NONE} and State[T]",
    ),
    "parameter without annotation beside others": (
        _on("on_startup", _open),
        "test_hook_parameters._open: the parameter 'more' has no annotation; say what it should receive",
    ),
    "publisher in an app without brokers": (
        _started("after_startup", _out),
        f"test_hook_parameters._out: the parameter 'out' {_ASKS}, and the app has no broker; add one by with_broker",
    ),
    "publisher of one of two brokers": (
        _started("on_shutdown", _out, "eu", "us"),
        f"test_hook_parameters._out: the parameter 'out' {_ASKS}, and 2 of the app's brokers match "
        f"(eu (memory://), us (memory://)); {_NAMED}",
    ),
    "publisher of a label that no broker has": (
        _started("on_shutdown", _out_of_asia, "eu", "us"),
        f"test_hook_parameters._out_of_asia: the parameter 'out' {_ASKS} of 'asia', and 0 of the app's brokers match "
        f"(eu (memory://), us (memory://)); {_NAMED}",
    ),
    "publisher of a class that two brokers have": (
        _started("after_startup", _out_of_memory, "eu", "us"),
        f"test_hook_parameters._out_of_memory: the parameter 'out' {_ASKS} of MemoryBroker, "
        f"and 2 of the app's brokers match (eu (memory://), us (memory://)); {_NAMED}",
    ),
}
"""A mistake, how to make it, and the whole text of the refusal."""


@pytest.mark.promise("SDK-44")
@pytest.mark.parametrize("mistake", REFUSALS)
def test_what_a_hook_cannot_be_given_is_refused(mistake: str) -> None:
    """The refusal comes at the decorator, or before a start does anything, with function, parameter and way out."""
    provoke, message = REFUSALS[mistake]
    with pytest.raises(ConfigurationError) as caught:
        provoke()

    assert str(caught.value).replace(__name__, "test_hook_parameters") == message


@pytest.mark.promise("SDK-44")
@pytest.mark.parametrize("start", ["start", "serve", "run_until", "run"])
def test_every_way_to_start_refuses_publishers_that_nobody_means(start: str) -> None:
    """All such functions are named at once, before the state opens, whichever way the service is started."""
    app = PyStream("shop", state=lambda: pytest.fail("it started"))
    app.after_startup(_out)
    app.on_shutdown(_out)
    begin: dict[str, Callable[[], object]] = {
        "start": app.start,
        "serve": lambda: anyio.run(app.serve),
        "run_until": lambda: anyio.run(lambda: app.run_until(anyio.sleep_forever)),
        "run": app.run,
    }
    with pytest.raises(RegistrationError) as caught:
        begin[start]()

    assert len(caught.value.refusals) == 2


@pytest.mark.anyio
@pytest.mark.promise("SDK-44")
async def test_a_refused_function_is_not_kept() -> None:
    """An app goes on without a function that it has refused."""
    app = PyStream("shop").with_broker(MemoryBroker())
    with pytest.raises(ConfigurationError):
        app.on_startup(_stock)

    await run(app)


@pytest.mark.promise("SDK-40")
def test_a_function_of_the_event_alone_is_called_without_a_look() -> None:
    """The common case stays as short as it was: nothing, or the event."""
    hook = validate_function("on_startup", lambda event: None)
    assert (hook.takes_event, hook.parameters) == (True, ())


@pytest.mark.promise("SDK-44")
def test_state_of_any_type_is_not_taken_for_the_event() -> None:
    """A parameter `State[Any]`, alone, asks for the state and not for the event."""

    def wants(anything: State[Any]) -> None: ...

    hook = validate_function("on_startup", wants)
    assert not hook.takes_event
    with pytest.raises(RegistrationError, match="asks for the app's state"):
        validate_function("on_startup", wants, has_state=False)
