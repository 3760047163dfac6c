"""What the tests of batches share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel
from pystream import Backoff, FailurePolicy

from tests.core.scripted import DelayableDelivery, ScriptedDelivery, ScriptedSource

__all__ = ["IN_PLACE", "STEADY", "Order", "numbered", "order", "orders", "quiet_log", "unreadable"]

IN_PLACE = ScriptedSource(retry="in_place")
STEADY = FailurePolicy(error=Backoff(1.0, jitter=0.0))


class Order(BaseModel):
    id: int


def order(number: int, **more: Any) -> ScriptedDelivery:
    return DelayableDelivery(str(number), b'{"id": %d}' % number, **more)


def orders(number: int, /, **more: Any) -> list[ScriptedDelivery]:
    return [order(index, **more) for index in range(number)]


def unreadable(name: str, **more: Any) -> ScriptedDelivery:
    return DelayableDelivery(name, b'{"id": "none"}', **more)


def numbered(count: int) -> list[ScriptedDelivery]:
    return [ScriptedDelivery(str(number), b"%d" % number) for number in range(count)]


@contextmanager
def quiet_log() -> Iterator[None]:
    """Nothing of pystream is logged; for tests that fail on purpose thousands of times."""
    logger = logging.getLogger("pystream")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
