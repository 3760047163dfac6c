"""SIGINT and SIGTERM: the first begins the graceful stop, a second one aborts it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import TaskStatus

SAME_REQUEST = 0.5  # process groups and supervisors deliver one request twice


async def watch(
    stop: Callable[[], None], abort: Callable[[int], None], *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Turn signals into `stop()`, then `abort(signum)`, until cancelled.

    Outside the main thread, and where the loop has no signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        task_status.started()
        return

    try:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            await _follow(signals, stop, abort)
    except NotImplementedError:  # Windows on asyncio: Ctrl-C stays a KeyboardInterrupt
        task_status.started()


async def _follow(signals: Any, stop: Callable[[], None], abort: Callable[[int], None]) -> None:
    first: float | None = None
    async for signum in signals:
        now = anyio.current_time()
        if first is None:
            first = now
            stop()
        elif now - first >= SAME_REQUEST:
            abort(int(signum))
