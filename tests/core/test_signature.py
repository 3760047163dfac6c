"""What is read from a handler's signature, in whatever form handler and annotations come."""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Optional, Union

import pytest
from pydantic import BaseModel
from pystream import Context, Header, Outcome, State
from pystream._runtime.signature import read_signature
from pystream.errors import RegistrationError
from pystream.parameters import MISSING


class Order(BaseModel):
    id: int


class Confirmed(BaseModel):
    order_id: int


async def handle(order: Order, context: Context) -> None: ...


async def bound_first(
    prefix: str, order: Order, *, limit: int = 3, region: Annotated[str, Header("region")]
) -> None: ...


class Service:
    async def handle(self, order: Order) -> Confirmed: ...

    @staticmethod
    async def static(order: Order) -> None: ...

    @classmethod
    async def of_class(cls, order: Order) -> None: ...


class CallableService:
    async def __call__(self, order: Order, context: Context) -> None: ...


def _names(handler: Callable[..., Any]) -> list[str]:
    return [parameter.name for parameter in read_signature(handler).parameters]


@pytest.mark.promise("HANDLER-5")
@pytest.mark.parametrize(
    ("handler", "name", "parameters"),
    [
        pytest.param(handle, "handle", ["order", "context"], id="function"),
        pytest.param(Service().handle, "Service.handle", ["order"], id="method"),
        pytest.param(Service.static, "Service.static", ["order"], id="static method"),
        pytest.param(Service.of_class, "Service.of_class", ["order"], id="class method"),
        pytest.param(CallableService(), "CallableService", ["order", "context"], id="callable object"),
        pytest.param(functools.partial(bound_first, "eu"), "bound_first", ["order", "limit", "region"], id="partial"),
        pytest.param(
            functools.partial(functools.partial(bound_first, "eu"), limit=5),
            "bound_first",
            ["order", "region"],
            id="partial by keyword",
        ),
        pytest.param(functools.partial(Service().handle), "Service.handle", ["order"], id="partial of a method"),
        pytest.param(
            functools.partial(CallableService()), "CallableService", ["order", "context"], id="partial of one"
        ),
    ],
)
def test_every_form_of_callable_is_read(handler: Callable[..., Any], name: str, parameters: list[str]) -> None:
    """Functions, methods, partials and callable objects show the parameters that are left to be filled."""
    signature = read_signature(handler)
    assert signature.name == name
    assert [parameter.name for parameter in signature.parameters] == parameters
    assert signature.parameters[0].annotation is Order


@pytest.mark.promise("HANDLER-5")
def test_a_decorated_handler_keeps_its_signature() -> None:
    """A wrapper made with functools.wraps shows what it wraps."""

    @functools.wraps(handle)
    async def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert _names(wrapper) == ["order", "context"]


@pytest.mark.promise("HANDLER-5")
@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param(Order, id="evaluated"),
        pytest.param("Order", id="postponed"),
        pytest.param("'Order'", id="stringised twice"),
        pytest.param(Annotated[Order, "note"], id="annotated"),
        pytest.param("Annotated['Order', 'note']", id="annotated and stringised"),
    ],
)
def test_annotations_are_resolved(annotation: object) -> None:
    """Postponed, stringised and annotated types are the same to a handler."""

    async def handler(order: Any) -> None: ...

    handler.__annotations__["order"] = annotation
    (parameter,) = read_signature(handler).parameters
    assert parameter.annotation is Order


@pytest.mark.promise("HANDLER-5")
def test_what_stands_behind_the_type_is_kept_apart() -> None:
    """Metadata, default and keyword of a parameter are known beside its type."""

    async def handler(order: Order, *, state: State[Decimal], n: Annotated[int, Header("n")] = 1) -> None: ...

    order, state, number = read_signature(handler).parameters
    assert (order.metadata, order.default, order.keyword) == ((), MISSING, False)
    assert (state.annotation, state.keyword) == (Decimal, True)
    assert (number.annotation, number.metadata, number.default) == (int, (Header("n"),), 1)
    assert number.full_annotation == Annotated[int, Header("n")]
    assert order.full_annotation is Order


@pytest.mark.promise("HANDLER-5")
@pytest.mark.parametrize(
    ("returns", "reply"),
    [
        pytest.param(None, None, id="None"),
        pytest.param(Outcome, None, id="Outcome"),
        pytest.param(Outcome | None, None, id="Outcome or None"),
        pytest.param(Confirmed, Confirmed, id="value"),
        pytest.param("Confirmed | Outcome", Confirmed, id="value or Outcome, postponed"),
        pytest.param(Optional[Confirmed], Confirmed, id="Optional"),
        pytest.param(Union[Confirmed, Order, Outcome, None], Union[Confirmed, Order], id="several values"),
        pytest.param(list[Confirmed], list[Confirmed], id="generic"),
        pytest.param(Any, Any, id="Any"),
    ],
)
def test_reply_is_what_the_return_annotation_leaves(returns: object, reply: object) -> None:
    """The type of the reply is the return annotation without None and Outcome."""

    async def handler(order: Order) -> Any: ...

    handler.__annotations__["return"] = returns
    assert read_signature(handler).reply == reply


@pytest.mark.promise("HANDLER-5")
def test_no_return_annotation_leaves_the_reply_open() -> None:
    """Without a return annotation any value may be a reply."""

    async def handler(order: Order) -> None: ...

    del handler.__annotations__["return"]
    assert read_signature(handler).reply is Any


@pytest.mark.promise("HANDLER-6")
@pytest.mark.parametrize("text", ["Missing", "Decimal.missing", "Order |", "Order[int, "])
def test_an_annotation_that_cannot_be_resolved_names_its_parameter(text: str) -> None:
    """Whatever is wrong with an annotation, the refusal is ours and names the parameter."""

    async def handler(order: Order, other: Any) -> None: ...

    handler.__annotations__["other"] = text
    with pytest.raises(RegistrationError, match=r"the annotation of 'other' in module '[a-z_.]*test_signature' cannot"):
        read_signature(handler)


@pytest.mark.promise("HANDLER-6")
def test_a_return_annotation_that_cannot_be_resolved_is_named() -> None:
    """The return annotation is a culprit like any parameter."""

    async def handler(order: Order) -> Any: ...

    handler.__annotations__["return"] = "Missing"
    with pytest.raises(RegistrationError, match="the annotation of 'return'"):
        read_signature(handler)
