"""What a broken form is to the model tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from pystream._runtime.forms import Form
from pystream._runtime.starter import Start

from tests.core.model.watching import Check

__all__ = ["Fault", "acknowledging_first", "nothing"]


@dataclass(frozen=True)
class Fault:
    """A broken form.

    Attributes:
        case: The form it stands in for.
        check: The one that is meant for it.
        form: Makes it; none if `patch` breaks the real one.
        patch: What is different while it runs.
    """

    case: str
    check: Check
    form: Callable[[int], Form] | None = None
    patch: Callable[[], AbstractContextManager[object]] = nullcontext


def acknowledging_first(start: Start[Any]) -> Start[Any]:
    """Start a delivery that is acknowledged already."""

    def early(delivery: Any) -> Awaitable[None] | None:
        for _ in delivery.ack().__await__():
            pass

        delivery.ack = nothing
        return start(delivery)

    return early


async def nothing() -> None:
    """What is awaited in place of something."""
