"""What a mount of batches is refused for, word by word, and what it tells the broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from pystream import BatchContext, Context, Header, Outcome, PyStream, by_key, mount
from pystream._runtime.registration import Registered, Scope, register
from pystream.errors import RegistrationError
from pystream.layers import CallNext
from pystream.memory import MemoryBroker

from tests.core.scripted import ScriptedBroker, ScriptedSource


class Order(BaseModel):
    id: int


class Confirmed(BaseModel):
    id: int


async def confirm(order: Order) -> None: ...


async def confirm_all(orders: list[Order]) -> None: ...


async def constrained(orders: Annotated[list[Order], Field(max_length=3)]) -> None: ...


async def with_context(orders: list[Order], ctx: Context) -> None: ...


async def with_header(orders: list[Order], region: Annotated[str, Header("region")]) -> None: ...


async def with_batch_context(order: Order, batch: BatchContext) -> None: ...


async def summing(orders: list[Order]) -> Confirmed: ...


async def mixing(orders: list[Order]) -> list[Confirmed | Outcome]: ...


async def replying(orders: list[Order]) -> list[Confirmed]: ...


async def deciding(orders: list[Order]) -> list[Outcome]: ...


async def unannotated_layer(ctx, call_next) -> Outcome:  # type: ignore[no-untyped-def]  # the point of the row
    outcome: Outcome = await call_next(ctx)
    return outcome


async def single_layer(ctx: Context, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


async def batch_layer(ctx: BatchContext, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


async def both_layer(ctx: Context | BatchContext, call_next: CallNext) -> Outcome:
    return await call_next(ctx)


async def unresolvable_layer(ctx: Absent, call_next: CallNext) -> Outcome:  # type: ignore[name-defined]  # noqa: F821 - the point of the row
    outcome: Outcome = await call_next(ctx)
    return outcome


class Layering:
    """Its instances are layers."""

    async def __call__(self, ctx: BatchContext, call_next: CallNext) -> Outcome:
        return await call_next(ctx)


def _with(handler: Callable[..., Any] = confirm_all, **settings: Any) -> Callable[[], object]:
    return lambda: PyStream("shop").with_broker(MemoryBroker(), mount(handler, "orders", **settings))


REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "list payload without a size": (
        _with(),
        "confirm_all: the payload 'orders' is a list, which asks for batches, and no batch= says how large; "
        "give batch=n, or for a JSON array use a RootModel, or tuple[T, ...]",
    ),
    "a size without a list payload": (
        _with(confirm, batch=8),
        "confirm: batch=8, and the payload 'order' is no list; annotate it as list[T], or leave batch= out",
    ),
    "a size of 0": (_with(batch=0), "confirm_all: batch=0; give a whole number of 1 or more"),
    "a size that is no number": (_with(batch=True), "confirm_all: batch=True; give a whole number of 1 or more"),
    "a wait of 0": (_with(batch=8, batch_wait=0), "confirm_all: batch_wait=0; give seconds above 0"),
    "a wait without end": (
        _with(batch=8, batch_wait=float("inf")),
        "confirm_all: batch_wait=inf; give seconds above 0",
    ),
    "a wait without a size": (
        _with(confirm, batch_wait=0.5),
        "confirm: batch_wait=0.5 without batch=; give batch=n and a payload of list[T], or leave batch_wait= out",
    ),
    "batches by key": (
        _with(batch=8, workers=by_key(4)),
        "confirm_all: workers=by_key(4) orders by key, and a batch holds many keys; "
        "give workers=4, or leave batch= out",
    ),
    "batches by key on threads": (
        _with(batch=8, threads=by_key(4)),
        "confirm_all: threads=by_key(4) orders by key, and a batch holds many keys; "
        "give threads=4, or leave batch= out",
    ),
    "constraints of the list": (
        _with(constrained, batch=8),
        "constrained: the payload 'orders' is an Annotated list, and pystream itself says how long it is; "
        "annotate what it holds, as list[Annotated[T, ...]]",
    ),
    "the context of one delivery": (
        _with(with_context, batch=8),
        "with_context: the parameter 'ctx' is of one delivery, and the handler gets batches; annotate one as "
        "BatchContext, whose contexts have the headers, key, id and attempt of each delivery",
    ),
    "the header of one delivery": (
        _with(with_header, batch=8),
        "with_header: the parameter 'region' is of one delivery, and the handler gets batches; annotate one as "
        "BatchContext, whose contexts have the headers, key, id and attempt of each delivery",
    ),
    "the context of a batch": (
        _with(with_batch_context),
        "with_batch_context: the parameter 'batch' asks for a BatchContext, and the handler gets single deliveries; "
        "annotate it as Context, or give batch=n and a payload of list[T]",
    ),
    "one reply to a batch": (
        _with(summing, batch=8, reply_to="sums"),
        "summing handles batches and returns <class 'test_batches_registration.Confirmed'>; annotate the return as "
        "None, Outcome, list[Outcome], or list[T] with reply_to=",
    ),
    "replies and outcomes in one list": (
        _with(mixing, batch=8, reply_to="confirmed"),
        "mixing returns a list of replies and outcomes, list[test_batches_registration.Confirmed | "
        "pystream.outcomes.Outcome]; return one kind: list[Outcome], or list[T] with reply_to=",
    ),
    "replies without a destination": (
        _with(replying, batch=8),
        "replying returns Confirmed, and nothing says where to publish it; "
        "give reply_to=, or annotate the return as None or Outcome",
    ),
    "a destination without replies": (
        _with(deciding, batch=8, reply_to="confirmed"),
        "deciding has reply_to='confirmed', and its return annotation leaves nothing to publish; "
        "annotate the type of the reply",
    ),
    "a layer of single deliveries": (
        _with(batch=8, layers=[single_layer]),
        "confirm_all: the layer test_batches_registration.single_layer understands single deliveries alone, and the "
        "handler gets batches; annotate its first parameter as BatchContext, or as Context | BatchContext",
    ),
    "a layer without an annotation": (
        _with(batch=8, layers=[unannotated_layer]),
        "confirm_all: the layer test_batches_registration.unannotated_layer understands single deliveries alone, and "
        "the handler gets batches; annotate its first parameter as BatchContext, or as Context | BatchContext",
    ),
    "a layer of batches": (
        _with(confirm, layers=[batch_layer]),
        "confirm: the layer test_batches_registration.batch_layer understands batches alone, and the handler gets "
        "single deliveries; annotate its first parameter as Context | BatchContext, or give batch=n",
    ),
    "a layer whose annotation cannot be resolved": (
        _with(confirm, layers=[unresolvable_layer]),
        "the layer test_batches_registration.unresolvable_layer: the annotation of 'ctx' cannot be resolved "
        "(name 'Absent' is not defined); import the name at the top level of its module, "
        "outside `if TYPE_CHECKING`",
    ),
}
"""A mistake: how to come by it, and the whole text that answers it."""


@pytest.mark.promise("BATCH-27")
@pytest.mark.parametrize("mistake", REFUSALS)
def test_refusals(mistake: str) -> None:
    """What contradicts batches is refused at registration, with a sentence that names both sides and the way out."""
    provoke, message = REFUSALS[mistake]
    with pytest.raises(RegistrationError) as caught:
        provoke()

    assert str(caught.value).replace("tests.core.", "") == message


def registered(handler: Callable[..., Any] = confirm_all, source: Any = None, **settings: Any) -> Registered:
    mounts = [(mount(handler, source or ScriptedSource(), **settings), Scope())]
    (made,) = register(ScriptedBroker(), None, mounts, has_state=False)
    return made


@pytest.mark.promise("BATCH-28")
@pytest.mark.parametrize(
    ("of_source", "of_mount", "wait"), [(None, None, 0.01), (0.5, None, 0.5), (0.5, 2, 2), (None, 0.25, 0.25)]
)
def test_the_wait_is_the_innermost(of_source: float | None, of_mount: float | None, wait: float) -> None:
    """A batch waits as long as the mount says, else its source, else 10 ms."""
    made = registered(source=ScriptedSource(batch_wait=of_source), batch=8, batch_wait=of_mount)
    assert made.batch is not None
    assert made.batch.wait == wait


@pytest.mark.promise("BATCH-28")
@pytest.mark.parametrize(
    ("settings", "concurrency"),
    [({}, 8), ({"workers": 3}, 24), ({"threads": 2}, 2 * 9 * 8), ({"threads": 1}, 9 * 8), ({"batch": 1}, 1)],
)
def test_the_broker_is_told(settings: dict[str, Any], concurrency: int) -> None:
    """The broker is told the size of a batch, and how many deliveries all batches in hand hold together."""
    made = registered(**{"batch": 8} | settings)
    assert made.mounting.batch_size == settings.get("batch", 8)
    assert made.mounting.concurrency == concurrency
    assert made.mounting.payload_type == list[Order]


@pytest.mark.promise("BATCH-28")
def test_single_deliveries_have_no_batch() -> None:
    """Without `batch=` the broker is told of none."""
    made = registered(confirm)
    assert made.batch is None
    assert made.mounting.batch_size is None


@pytest.mark.promise("BATCH-26")
@pytest.mark.parametrize("layer", [batch_layer, both_layer, Layering(), partial(batch_layer)])
def test_layers_that_understand_batches_are_taken(layer: Any) -> None:
    """A layer says by the annotation of its first parameter that it understands batches, also as object or partial."""
    assert registered(batch=8, layers=[layer]).layers == (layer,)


@pytest.mark.promise("BATCH-26")
@pytest.mark.parametrize("layer", [single_layer, both_layer, unannotated_layer])
def test_layers_that_understand_single_deliveries_are_taken(layer: Any) -> None:
    """A layer without an annotation, or with one that allows them, goes around single deliveries."""
    assert registered(confirm, layers=[layer]).layers == (layer,)
