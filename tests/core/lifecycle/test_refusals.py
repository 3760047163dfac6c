"""What an app refuses when it is declared: one sentence, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pystream import PyStream, Router, mount, subscriber
from pystream.errors import ConfigurationError, PyStreamError, RegistrationError
from pystream.memory import MemoryBroker


@subscriber("orders")
async def orders(payload: bytes) -> None: ...


async def plain() -> None: ...


async def never() -> None:
    raise AssertionError("the service started")


CONSTRUCTOR: list[tuple[dict[str, Any], str]] = [
    ({"title": ""}, "PyStream(title=''): give a text that is not empty"),
    ({"title": None}, "PyStream(title=None): give a text that is not empty"),
    ({"version": 1}, "PyStream(version=1): give a text"),
    ({"on_failure": "drop"}, "PyStream(on_failure='drop'): give a FailurePolicy"),
    ({"plugins": "audit"}, "PyStream(plugins='audit'): give a list of plugins"),
    ({"on_subscription_end": "ignore"}, "PyStream(on_subscription_end='ignore'): give 'fail' or 'log'"),
    ({"max_tracked": 0}, "PyStream(max_tracked=0): give a whole number, 1 or more"),
    ({"max_tracked": "5"}, "PyStream(max_tracked='5'): give a whole number, 1 or more"),
    ({"max_tracked": 1.5}, "PyStream(max_tracked=1.5): give a whole number, 1 or more"),
    ({"hook_timeout": 0}, "PyStream(hook_timeout=0): give seconds above 0"),
    ({"hook_timeout": None}, "PyStream(hook_timeout=None): give seconds above 0"),
    ({"hook_timeout": float("nan")}, "PyStream(hook_timeout=nan): give seconds above 0"),
    (
        {"shutdown_timeout": -1},
        "PyStream(shutdown_timeout=-1): give seconds, 0 or more, or None for no limit",
    ),
    (
        {"shutdown_timeout": "30"},
        "PyStream(shutdown_timeout='30'): give seconds, 0 or more, or None for no limit",
    ),
    (
        {"shutdown_timeout": float("nan")},
        "PyStream(shutdown_timeout=nan): give seconds, 0 or more, or None for no limit",
    ),
    ({"layers": len}, "PyStream: layers=<built-in function len>; give a list of `async def` functions"),
]
"""Arguments of PyStream, and the whole text of the refusal."""


@pytest.mark.promise("STOP-23")
@pytest.mark.parametrize(("values", "sentence"), CONSTRUCTOR)
def test_constructor_refuses(values: dict[str, Any], sentence: str) -> None:
    """A value that cannot work is refused where it is given, naming it and what would do."""
    with pytest.raises(ConfigurationError) as caught:
        PyStream(**{"title": "shop", **values})

    assert str(caught.value) == sentence


@pytest.mark.promise("STOP-23")
@pytest.mark.parametrize(
    "start",
    [
        lambda app: app.start(shutdown_timeout=-1),
        lambda app: anyio.run(lambda: app.serve(shutdown_timeout=-1)),
        lambda app: anyio.run(lambda: app.run_until(never, shutdown_timeout=-1)),
        lambda app: app.run(shutdown_timeout=-1),
    ],
    ids=["start", "serve", "run_until", "run"],
)
def test_start_refuses_a_negative_budget(start: Callable[[PyStream], object]) -> None:
    """A budget below 0 is refused before anything starts, wherever it is given."""
    app = PyStream("shop")
    app.on_startup(lambda: pytest.fail("it started"))
    with pytest.raises(ConfigurationError) as caught:
        start(app)

    assert str(caught.value) == "PyStream(shutdown_timeout=-1): give seconds, 0 or more, or None for no limit"


@pytest.mark.promise("STOP-23")
@pytest.mark.parametrize("stop", [None, 5, object])
def test_run_until_refuses_what_cannot_be_awaited(stop: Any) -> None:
    """run_until names what it was given and what would do, before the service starts."""
    app = PyStream("shop")
    app.on_startup(lambda: pytest.fail("it started"))
    given: Any = stop() if stop is object else stop
    with pytest.raises(ConfigurationError) as caught:
        anyio.run(lambda: app.run_until(given))

    assert str(caught.value) == f"run_until({given!r}): give an async callable, or something with wait()"


@pytest.mark.promise("STOP-23")
def test_run_refuses_an_unknown_backend() -> None:
    """A backend that is none is refused with the three there are."""
    with pytest.raises(ConfigurationError) as caught:
        PyStream("shop").run(backend="curio")

    assert str(caught.value) == "backend='curio' is none; give asyncio, uvloop or trio"


@pytest.mark.promise("STOP-24")
@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (
            None,
            None,
            "two brokers of type MemoryBroker, and neither has a label; give each its own: with_broker(..., label=...)",
        ),
        (
            "a",
            "a",
            "two brokers of type MemoryBroker, and both have the label 'a'; "
            "give each its own: with_broker(..., label=...)",
        ),
    ],
)
def test_two_brokers_of_one_type_need_labels(first: str | None, second: str | None, sentence: str) -> None:
    """Two brokers that nothing tells apart are refused; one label is enough."""
    app = PyStream("shop").with_broker(MemoryBroker(), label=first)
    with pytest.raises(RegistrationError) as caught:
        app.with_broker(MemoryBroker(), label=second)

    assert str(caught.value) == sentence
    app.with_broker(MemoryBroker(), label="other")


@pytest.mark.promise("STOP-24")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([orders], f"with_broker was given {orders!r}, which is no broker; give the broker first, then the handlers"),
        (
            [MemoryBroker],
            f"with_broker was given {MemoryBroker!r}, which is no broker; give the broker first, then the handlers",
        ),
        (
            [MemoryBroker(), plain],
            "plain is no handler: decorate it with @subscriber(...), or wrap it in mount(...)",
        ),
        ([MemoryBroker(), 5], "5 is no handler: decorate it with @subscriber(...), or wrap it in mount(...)"),
    ],
    ids=["a handler first", "a class", "a plain function", "a number"],
)
def test_with_broker_refuses(arguments: list[Any], sentence: str) -> None:
    """What is no broker, and what is no handler, is refused, and the app stays as it was."""
    app = PyStream("shop")
    with pytest.raises(RegistrationError) as caught:
        app.with_broker(*arguments)

    assert str(caught.value) == sentence
    app.with_broker(MemoryBroker(), orders)  # nothing was added, so no label is needed


@pytest.mark.promise("STOP-24")
def test_every_refusal_of_a_broker_is_named_at_once() -> None:
    """Several handlers that cannot be mounted are one error with a line for each."""

    @subscriber("bills")
    async def two(payload: bytes, other: bytes) -> None: ...

    with pytest.raises(RegistrationError) as caught:
        PyStream("shop").with_broker(MemoryBroker(), two, mount(orders, threads=0), Router().include(two))

    assert len(caught.value.refusals) == 3
    assert isinstance(caught.value, PyStreamError)


class OtherBroker(MemoryBroker):
    """A broker of another type, whose names are its own."""


@pytest.mark.promise("STOP-24")
def test_two_brokers_do_not_share_a_subscription_name() -> None:
    """Subscriptions of one name on two unlabelled brokers are refused; a label or a name tells them apart."""
    app = PyStream("shop").with_broker(MemoryBroker(), orders)
    with pytest.raises(RegistrationError) as caught:
        app.with_broker(OtherBroker(), orders)

    assert str(caught.value) == (
        "orders: the subscription 'orders' is there already, on memory://; "
        "give the handler a name=, or one of the two brokers a label="
    )
    app.with_broker(OtherBroker(), orders, label="other")
    app.with_broker(OtherBroker(), mount(orders, name="more"), label="third")
