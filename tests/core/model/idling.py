"""Event loops that tell when nothing can move any more, so that a schedule needs no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

__all__ = ["Backend", "idle", "play"]

Backend = tuple[str, dict[str, Any]]

_TURNS = 150  # on uvloop, which has no such hook: many times over what one move sets off


class _Selector(selectors.DefaultSelector):
    """Tells those who wait for it that the loop is about to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleepers: list[asyncio.Future[None]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 or not self.sleepers:
            return super().select(timeout)

        ready = super().select(0)
        if not ready:
            sleepers, self.sleepers = self.sleepers, []
            for sleeper in sleepers:
                if not sleeper.done():
                    sleeper.set_result(None)

        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.idle_selector = _Selector()
        super().__init__(self.idle_selector)


async def idle() -> None:
    """Return when no task can go on but by what comes from outside."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        from trio.testing import wait_all_tasks_blocked

        await wait_all_tasks_blocked()
        return

    if isinstance(loop, _Loop):
        sleeper = loop.create_future()
        loop.idle_selector.sleepers.append(sleeper)
        await sleeper
        return

    for _ in range(_TURNS):
        await checkpoint()


def play(backend: Backend, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
    """Run the function on a loop of this kind."""
    name, options = backend
    if name == "asyncio" and not options.get("use_uvloop"):
        options = {"loop_factory": _Loop}

    return anyio.run(function, *args, backend=name, backend_options=options)
