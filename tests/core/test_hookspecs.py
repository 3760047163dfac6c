"""The events of the hooks, and the marks of their specifications."""

from __future__ import annotations

import dataclasses
import inspect
import typing

import pytest
from pystream import hookspecs
from pystream.hookspecs import ServiceEvent, Settled
from pystream.outcomes import Outcome, retry_after
from pystream.plugins import HookTable

HOOKS = ["on_startup", "after_startup", "on_shutdown", "after_shutdown", "post_settle"]


@pytest.mark.promise("SDK-1")
def test_hooks_are_the_five_promised() -> None:
    """The specifications are exactly the five hooks, and the table has a row for each."""
    marked = [name for name, value in vars(hookspecs).items() if hasattr(value, "pystream_spec")]

    assert sorted(marked) == sorted(HOOKS)
    assert [field.name for field in dataclasses.fields(HookTable)] == HOOKS


@pytest.mark.promise("SDK-1")
@pytest.mark.parametrize("name", HOOKS)
def test_hook_takes_one_event(name: str) -> None:
    """Every hook takes one parameter, the event, so that the event can grow."""
    spec = getattr(hookspecs, name)
    event_type = Settled if name == "post_settle" else ServiceEvent

    assert list(inspect.signature(spec).parameters) == ["event"]
    assert typing.get_type_hints(spec) == {"event": event_type, "return": type(None)}


@pytest.mark.promise("SDK-1")
def test_service_event_is_frozen() -> None:
    """A service event cannot be changed by one hook under the eyes of the next."""
    event = ServiceEvent(title="billing", version="1.0.0")

    with pytest.raises(dataclasses.FrozenInstanceError):
        event.title = "other"  # type: ignore[misc]  # the point of the test

    assert event.failure is None


@pytest.mark.promise("SDK-1")
def test_settled_is_an_immutable_tuple_with_the_promised_fields() -> None:
    """`Settled` is a named tuple of subscription, outcome, attempt, duration and error."""
    event = Settled("orders", retry_after(5), 2, 0.25, None)

    assert isinstance(event, tuple)
    assert event._asdict() == {
        "subscription": "orders",
        "outcome": Outcome("retry", 5.0),
        "attempt": 2,
        "duration": 0.25,
        "error": None,
    }
    with pytest.raises(AttributeError):
        event.attempt = 3  # type: ignore[misc]  # the point of the test
