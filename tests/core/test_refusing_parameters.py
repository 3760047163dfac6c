"""Parameters that refuse a delivery: what fills them raises `Settle`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pystream import Outcome, Settle, ack, by_key, drop, retry, retry_after

from tests.core.rig import rig
from tests.core.scripted import DelayableDelivery, ScriptedSource

pytestmark = pytest.mark.anyio

_called: list[str] = []


@dataclass(frozen=True)
class Tenant:
    """What the source offers, or refuses."""


@dataclass(frozen=True)
class Quota:
    """What the source offers besides."""


async def handler(tenant: Tenant, body: bytes, quota: Quota) -> None:
    _called.append("handler")


def _refusing(outcome: Outcome) -> Callable[[Any], Any]:
    def refuse(delivery: Any) -> Any:
        _called.append("tenant")
        raise Settle(outcome)

    return refuse


def _quota(delivery: Any) -> Quota:
    _called.append("quota")
    return Quota()


@pytest.mark.promise("HANDLER-11")
@pytest.mark.parametrize("form", [{}, {"workers": 2}, {"workers": by_key(2)}, {"threads": 1}], ids=str)
@pytest.mark.parametrize(
    ("outcome", "line"),
    [(ack(), "ack 1"), (drop(), "reject 1"), (retry(), "requeue 1"), (retry_after(5), "retry_after 1")],
    ids=["ack", "drop", "retry", "retry_after"],
)
async def test_a_refusing_parameter_settles_by_its_outcome(outcome: Outcome, line: str, form: dict[str, Any]) -> None:
    """The first refusal settles the delivery; later parameters are not read, and the handler does not run."""
    _called.clear()
    source = ScriptedSource(parameters={Tenant: _refusing(outcome), Quota: _quota})
    async with rig(handler, DelayableDelivery("1", b"x", count=1), source=source, **form) as running:
        await running.ends(1)

    assert running.lines == [line]
    assert running.failures == []
    assert _called == ["tenant"]


@pytest.mark.promise("HANDLER-11")
async def test_parameters_are_read_in_the_order_of_the_signature() -> None:
    """A parameter that comes later may refuse what an earlier one has accepted; the payload was read by then."""
    _called.clear()

    def tenant(delivery: Any) -> Tenant:
        _called.append("accepted")
        return Tenant()

    source = ScriptedSource(parameters={Tenant: tenant, Quota: _refusing(drop())})
    async with rig(handler, DelayableDelivery("1", b"x", count=1), source=source) as running:
        await running.ends(1)

    assert running.lines == ["reject 1"]
    assert _called == ["accepted", "tenant"]
