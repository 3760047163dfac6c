"""The kinds of parameters: what each hands over, and what it makes of a message at fault."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Generic, Optional, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pystream import Context, Header, Out, Outcome, State
from pystream.errors import ConfigurationError, DecodeError, RegistrationError
from pystream.parameters import KINDS, MISSING, Getter, Parameter, Surroundings, Undecodable

from tests.core.rig import Rig, rig
from tests.core.scripted import ScriptedDelivery, ScriptedSource

T = TypeVar("T")


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: int
    tags: dict[str, int] = {}


class Page(BaseModel, Generic[T]):
    items: tuple[T, ...]


class Stock:
    pass


class Stamp(str):
    __slots__ = ()


class Mark(enum.Enum):
    KEY = "key"


Key = Annotated[str | None, Mark.KEY]
SOURCE = ScriptedSource(
    parameters={Stamp: lambda delivery: Stamp(delivery.id), Mark.KEY: lambda delivery: delivery.key},
)


def getter(
    annotation: Any, *metadata: Any, default: Any = MISSING, source_parameters: Mapping[Any, Any] | None = None
) -> Getter:
    parameter = Parameter("value", annotation, metadata, default)
    surroundings = Surroundings(handler="handler", source_parameters=source_parameters or {})
    kind = next(kind for kind in KINDS if kind.match(parameter, surroundings))
    return kind.compile(parameter, surroundings)


def text_of(get: Getter, delivery: ScriptedDelivery) -> str:
    with pytest.raises(Undecodable) as caught:
        get(delivery, None)

    assert isinstance(caught.value.error, DecodeError)
    return str(caught.value.error)


# The payload.


@pytest.mark.promise("HANDLER-1")
@pytest.mark.parametrize(
    ("annotation", "payload", "value"),
    [
        pytest.param(Order, b'{"id": 1}', Order(id=1), id="model"),
        pytest.param(int, b"17", 17, id="int"),
        pytest.param(str, b'"text"', "text", id="str"),
        pytest.param(dict[str, int], b'{"a": 1}', {"a": 1}, id="dict"),
        pytest.param(tuple[int, ...], b"[1, 2]", (1, 2), id="tuple"),
        pytest.param(Page[int], b'{"items": [1]}', Page[int](items=(1,)), id="generic"),
        pytest.param(Order | int, b"3", 3, id="union"),
        pytest.param(Order | None, b"null", None, id="optional"),
        pytest.param(Any, b"[null]", [None], id="any"),
        pytest.param(bytes, b"\x00\xff", b"\x00\xff", id="bytes"),
    ],
)
def test_payload_is_validated_from_its_bytes(annotation: Any, payload: bytes, value: Any) -> None:
    """Any type pydantic can validate is a payload; bytes are handed over as they came."""
    assert getter(annotation)(ScriptedDelivery("1", payload), None) == value


@pytest.mark.promise("HANDLER-1")
def test_raw_payload_is_not_copied() -> None:
    """A handler of bytes receives the very object of the delivery."""
    payload = bytes(100)
    assert getter(bytes)(ScriptedDelivery("1", payload), None) is payload


@pytest.mark.promise("HANDLER-1")
def test_metadata_of_the_payload_is_obeyed() -> None:
    """Constraints in Annotated hold for the payload."""
    get = getter(int, Field(gt=10))
    assert get(ScriptedDelivery("1", b"11"), None) == 11
    assert text_of(get, ScriptedDelivery("1", b"10")) == "the payload is not valid: the whole: greater_than"


@pytest.mark.promise("RETRY-11")
@pytest.mark.parametrize(
    ("annotation", "payload", "text"),
    [
        (Order, b'{"id": "secret"}', "the payload is not valid: id: int_parsing"),
        (Order, b'{"id": 1, "secret": 2}', "the payload is not valid: <key>: extra_forbidden"),
        (Order, b'{"id": 1, "tags": {"secret": "x"}}', "the payload is not valid: tags.<key>: int_parsing"),
        (dict[int, int], b'{"secret": 1}', "the payload is not valid: <key>.[key]: int_parsing"),
        (Order, b"secret", "the payload is not valid: the whole: json_invalid"),
        (Order, b"", "the payload is not valid: the whole: json_invalid"),
        (Page[Order], b'{"items": [{}]}', "the payload is not valid: items.0.id: missing"),
        (
            Order | int,
            b'"secret"',
            "the payload is not valid: Order: model_type; int: int_parsing",
        ),
    ],
)
def test_an_unreadable_payload_is_told_without_showing_it(annotation: Any, payload: bytes, text: str) -> None:
    """The reasons name places and kinds of errors, neither values nor keys of the message."""
    assert text_of(getter(annotation), ScriptedDelivery("1", payload)) == text


# Headers.


@pytest.mark.promise("HANDLER-2")
@pytest.mark.parametrize(
    ("annotation", "sent", "value"),
    [
        pytest.param(str, b"caf\xc3\xa9", "café", id="str"),
        pytest.param(str, b"", "", id="empty str"),
        pytest.param(bytes, b"\xff\x00", b"\xff\x00", id="bytes"),
        pytest.param(bytes | None, b"\xff", b"\xff", id="bytes or None"),
        pytest.param(Optional[bytes], b"\xff", b"\xff", id="Optional bytes"),
        pytest.param(int, b"17", 17, id="int"),
        pytest.param(int | None, b"17", 17, id="int or None"),
        pytest.param(str | None, b"x", "x", id="str or None"),
        pytest.param(bool, b"true", True, id="bool"),
        pytest.param(date, b"2026-11-30", date(2026, 11, 30), id="date"),
    ],
)
def test_header_is_read_as_its_type(annotation: Any, sent: bytes, value: Any) -> None:
    """A header is text, bytes as they came, or what pydantic reads from text."""
    get = getter(annotation, Header("x-id"))
    assert get(ScriptedDelivery("1", headers={"x-id": sent}), None) == value


@pytest.mark.promise("HANDLER-2")
def test_header_names_match_without_case() -> None:
    """The spelling of a header's name does not matter."""
    get = getter(str, Header("X-Request-ID"))
    assert get(ScriptedDelivery("1", headers={"other": b"", "x-request-id": b"7"}), None) == "7"


@pytest.mark.promise("HANDLER-2")
@pytest.mark.parametrize(
    ("annotation", "default", "value"),
    [
        pytest.param(str, "none", "none", id="default"),
        pytest.param(int, 0, 0, id="falsy default"),
        pytest.param(str | None, MISSING, None, id="optional"),
        pytest.param(str | None, "none", "none", id="optional with default"),
        pytest.param(Optional[int], MISSING, None, id="Optional"),
        pytest.param(bytes | None, MISSING, None, id="optional bytes"),
    ],
)
def test_a_missing_header_gives_the_default(annotation: Any, default: Any, value: Any) -> None:
    """Without the header a parameter gets its default, else none where its type allows it."""
    get = getter(annotation, Header("x-id"), default=default)
    assert get(ScriptedDelivery("1"), None) == value


@pytest.mark.promise("HANDLER-2", "RETRY-5")
@pytest.mark.parametrize(
    ("annotation", "headers", "text"),
    [
        (str, {}, "the header 'x-id' is missing"),
        (bytes, {"other": b"1"}, "the header 'x-id' is missing"),
        (str, {"x-id": b"\xff"}, "the header 'x-id' is not UTF-8"),
        (int, {"x-id": b"\xff"}, "the header 'x-id' is not UTF-8"),
        (int, {"x-id": b"secret"}, "the header 'x-id' is not valid: the whole: int_parsing"),
        (int | None, {"x-id": b""}, "the header 'x-id' is not valid: the whole: int_parsing"),
    ],
)
def test_an_unreadable_header_is_the_messages_fault(annotation: Any, headers: dict[str, bytes], text: str) -> None:
    """A header that is missing, no UTF-8 or not valid meets the decode policy, its value not shown."""
    assert text_of(getter(annotation, Header("x-id")), ScriptedDelivery("1", headers=headers)) == text


@pytest.mark.promise("HANDLER-2")
def test_constraints_of_a_header_are_obeyed() -> None:
    """What stands in Annotated beside Header holds too."""
    get = getter(int, Header("n"), Field(gt=10))
    assert get(ScriptedDelivery("1", headers={"n": b"11"}), None) == 11
    assert (
        text_of(get, ScriptedDelivery("1", headers={"n": b"10"}))
        == "the header 'n' is not valid: the whole: greater_than"
    )


@pytest.mark.promise("HANDLER-2")
def test_headers_that_cannot_be_read_are_the_messages_fault() -> None:
    """A DecodeError at the access to the headers goes by the decode policy."""
    error = DecodeError("the headers are broken")
    assert text_of(getter(str, Header("x")), ScriptedDelivery("1", header_error=error)) == "the headers are broken"


@pytest.mark.promise("HANDLER-6")
@pytest.mark.parametrize("name", ["", None, 7])
def test_a_header_needs_a_name(name: Any) -> None:
    """Header without a name is refused where it is written."""
    with pytest.raises(ConfigurationError, match="give the header's name"):
        Header(name)


# What the source offers.


@pytest.mark.promise("HANDLER-3")
def test_a_source_offers_types_and_marks() -> None:
    """A source's parameter is known by its type or by its mark in Annotated."""
    delivery = ScriptedDelivery("7", key="k")
    assert getter(Stamp, source_parameters=SOURCE.parameters)(delivery, None) == Stamp("7")
    assert getter(str | None, Mark.KEY, source_parameters=SOURCE.parameters)(delivery, None) == "k"


@pytest.mark.promise("HANDLER-3")
def test_a_source_parameter_that_cannot_be_read_is_the_messages_fault() -> None:
    """A DecodeError of a source's getter goes by the decode policy."""

    def fail(delivery: Any) -> Any:
        raise DecodeError("no position")

    assert text_of(getter(Stamp, source_parameters={Stamp: fail}), ScriptedDelivery()) == "no position"


@pytest.mark.promise("HANDLER-3")
def test_unhashable_marks_are_nobodys() -> None:
    """Metadata that cannot be in a table is passed over."""
    assert getter(int, [], source_parameters=SOURCE.parameters)(ScriptedDelivery("1", b"1"), None) == 1


# All of them in one handler.


Region = Annotated[str, Header("region")]
_KINDS = {
    "order": Order,
    "context": Context,
    "state": State[Stock],
    "key": Key,
    "stamp": Stamp,
    "region": Region,
    "out": Out[int],
}
_ORDERS = [
    ["order"],
    ["order", "key"],
    ["context", "order"],
    ["key", "region", "order"],
    ["state", "out", "context", "region", "key", "order", "stamp"],
    ["order", "context", "state", "key", "stamp", "region", "out"],
]


def _handler(names: list[str], keywords: list[str], seen: list[dict[str, Any]]) -> Any:
    """A handler with these parameters, in this order."""
    parameters = ", ".join([*names, "*", *keywords] if keywords else names)
    scope: dict[str, Any] = {"seen": seen}
    exec(f"async def handler({parameters}):\n    seen.append(dict(locals()))", scope)  # noqa: S102  # its own text
    handler = scope["handler"]
    handler.__annotations__ = {name: _KINDS[name] for name in names + keywords}
    return handler


def _check(seen: dict[str, Any], names: list[str], stock: Stock) -> None:
    assert list(seen) == names
    expected: dict[str, Any] = {"order": Order(id=1), "state": stock, "key": "k", "stamp": Stamp("7"), "region": "eu"}
    for name, value in seen.items():
        if name == "context":
            assert isinstance(value, Context)
            assert (value.id, value.key, value.subscription) == ("7", "k", "orders")
        elif name == "out":
            assert isinstance(value, Out)
        else:
            assert value == expected[name]


@pytest.mark.promise("HANDLER-4")
@pytest.mark.anyio
@pytest.mark.parametrize("split", [0, 1, 2], ids=["positional", "one by keyword", "two by keyword"])
@pytest.mark.parametrize("names", _ORDERS, ids=",".join)
async def test_parameters_are_filled_in_any_order(names: list[str], split: int) -> None:
    """Each parameter gets its own value wherever it stands, by position or by keyword."""
    stock, seen = Stock(), list[dict[str, Any]]()
    at = max(0, len(names) - split)
    handler = _handler(names[:at], names[at:], seen)
    delivery = ScriptedDelivery("7", b'{"id": 1}', key="k", headers={"region": b"eu"})
    async with rig(handler, delivery, source=SOURCE, state=stock) as running:
        await running.ends(1)

    assert running.lines == ["ack 7"]
    _check(seen[0], names, stock)


class Service:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def handle(self, order: Order, context: Context) -> None:
        self.seen.append((order.id, context.id))

    __call__ = handle

    async def with_more(self, factor: int, order: Order, *, limit: int) -> None:
        self.seen.append((order.id * factor, limit))


@pytest.mark.promise("HANDLER-5")
@pytest.mark.anyio
async def test_methods_partials_and_callable_objects_run() -> None:
    """Whatever is mounted is called with what its signature asks for."""
    service = Service()
    bound = functools.partial(service.with_more, 2, limit=9)
    for handler, seen in ((service.handle, (5, "1")), (service, (5, "1")), (bound, (10, 9))):
        async with rig(handler, ScriptedDelivery("1", b'{"id": 5}')) as running:
            await running.ends(1)

        assert running.lines == ["ack 1"]
        assert service.seen.pop() == seen


@pytest.mark.promise("HANDLER-9")
@pytest.mark.anyio
async def test_headers_are_left_alone_unless_something_reads_them() -> None:
    """A handler of payload, key and context does not touch the headers, even unreadable ones."""

    async def handler(order: Order, key: Key, context: Context) -> None:
        assert context.key == key

    delivery = ScriptedDelivery("1", b'{"id": 1}', header_error=DecodeError("broken"))
    async with rig(handler, delivery, source=SOURCE) as running:
        await running.ends(1)

    assert running.lines == ["ack 1"]
    assert delivery.header_reads == 0


@pytest.mark.promise("HANDLER-3")
@pytest.mark.anyio
async def test_out_publishes_over_the_broker_of_the_mount() -> None:
    """An Out parameter sends values of its type, with key and headers, before the settlement."""

    async def handler(order: Order, out: Out[Order]) -> None:
        await out.publish(order, "copies", key="k", headers={"X-A": "1", "X-B": b"\xff"})
        await out.publish(Order(id=2), "copies")

    async with rig(handler, ScriptedDelivery("1", b'{"id": 1}')) as running:
        await running.ends(1)

    assert running.lines == ['publish copies {"id":1,"tags":{}}', 'publish copies {"id":2,"tags":{}}', "ack 1"]
    first, second = running.broker.sent
    assert (first.key, dict(first.headers)) == ("k", {"X-A": b"1", "X-B": b"\xff"})
    assert (second.key, dict(second.headers)) == (None, {})


# The context.


@pytest.mark.promise("HANDLER-3")
@pytest.mark.anyio
async def test_context_shows_the_delivery() -> None:
    """A context shows id, destination, payload, key, headers, attempt and subscription."""
    seen: list[Any] = []

    async def handler(body: bytes, context: Context) -> Outcome | None:
        seen.append((context.id, context.destination, context.payload, context.key, context.attempt, repr(context)))
        assert context.headers["X-A"] == b"1"
        context.headers["x-a"] = b"2"
        assert context.headers["X-A"] == b"2"
        return None

    delivery = ScriptedDelivery("1", b"secret", key="k", count=3, headers={"x-a": b"1"})
    async with rig(handler, delivery) as running:
        await running.ends(1)

    assert seen == [("1", "orders", b"secret", "k", 3, "Context(subscription='orders', id='1', attempt=3)")]
    assert delivery.headers == {"x-a": b"1"}


@pytest.mark.promise("HANDLER-3")
@pytest.mark.anyio
async def test_unreadable_headers_read_by_the_handler_are_its_failure() -> None:
    """What the handler itself reads of broken headers goes by the error policy, not the decode policy."""

    async def handler(body: bytes, context: Context) -> None:
        _ = context.headers

    delivery = ScriptedDelivery("1", header_error=DecodeError("broken"), count=1)
    async with rig(handler, delivery) as running:
        await _one_retry(running)


async def _one_retry(running: Rig) -> None:
    await running.timer()
    running.clock.advance(2)
    await running.ends(1)
    assert running.lines == ["requeue 1"]


# The state.


@pytest.mark.promise("HANDLER-3")
def test_state_of_another_class_is_refused_when_it_is_open() -> None:
    """A state that does not fit its parameter is refused, naming both classes."""
    surroundings = Surroundings(handler="handler", source_parameters={}, has_state=True, state=7)
    kind = next(kind for kind in KINDS if type(kind).__name__ == "StateKind")
    parameter = Parameter("stock", Stock)
    with pytest.raises(RegistrationError) as caught:
        kind.compile(parameter, surroundings)

    assert str(caught.value) == ("handler: the parameter 'stock' asks for State[Stock], and the app's state is a int")
