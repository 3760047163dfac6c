"""What the services of the live tests handle, and how the tests see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio
from pydantic import BaseModel
from pystream import Out

__all__ = ["Log", "Order", "Unique", "publish_in_order", "publish_orders"]

Unique = Callable[[str], str]


class Order(BaseModel):
    """What the tests publish."""

    id: int


class Log:
    """What handlers have seen, and a way to wait for enough of it."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._different: set[int] = set()
        self._changed = anyio.Event()

    def add(self, number: int) -> None:
        """Note one more."""
        self.seen.append(number)
        self._different.add(number)
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, enough: Callable[[], bool], seconds: float = 20) -> None:
        """Wait until `enough()` holds."""
        with anyio.fail_after(seconds):
            while not enough():
                await self._changed.wait()

    async def distinct(self, count: int, seconds: float = 60) -> None:
        """Wait until so many different numbers were seen."""
        await self.until(lambda: len(self._different) >= count, seconds)


async def publish_orders(publisher: Out[Order], topic: str, numbers: Iterable[int], key: str | None = None) -> None:
    """Publish all of them, overlapping, so that they travel in batches; in any order."""
    async with anyio.create_task_group() as sends:
        for number in numbers:
            sends.start_soon(publish_one, publisher, topic, number, key)


async def publish_in_order(publisher: Out[Order], topic: str, numbers: Iterable[int], key: str | None = None) -> None:
    """Publish one after the other."""
    for number in numbers:
        await publish_one(publisher, topic, number, key)


async def publish_one(publisher: Out[Order], topic: str, number: int, key: str | None) -> None:
    """Publish one."""
    await publisher.publish(Order(id=number), topic, key=key)
