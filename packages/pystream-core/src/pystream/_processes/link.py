"""A process of a service and the one that supervises it: what it is told, and what it tells.

Orders come on a pipe whose other end nobody but the supervising process holds. So its end
is noticed however that process ended, on every platform.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import anyio
from anyio.abc import TaskStatus

from pystream._loops import Loop, current_loop
from pystream._processes.setup import FAILED
from pystream._runtime import signals

logger = logging.getLogger("pystream.processes")


class Link:
    """The process's side.

    Args:
        orders: Lines, `stop` or `abort` with a signal's number; they end with the supervising process.
        reports: The file descriptor to report on.
        name: What the process is called in the log.
    """

    def __init__(self, orders: Iterable[bytes], reports: int, name: str) -> None:
        self._orders = orders
        self._reports = reports
        self._name = name
        self._requested: deque[Callable[[], object]] = deque()
        self._loop: Loop | None = None
        self._stop: Callable[[], object] = _die
        self._abort: Callable[[int], object] = _die
        self._bound: float | None = None

    def follow(self) -> None:
        """Do from now on what is ordered, on a thread that keeps nothing alive."""
        threading.Thread(target=self._follow, name=f"{self._name} orders", daemon=True).start()

    def report(self, kind: Literal["serving", "refused", "failed"], told: Any) -> bool:
        """Tell the supervising process; false if it is gone."""
        line = json.dumps([kind, told]).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._reports, line) :]
        except OSError:
            return False

        return True

    async def watch(
        self,
        bounds: tuple[float, float],
        stop: Callable[[], object],
        abort: Callable[[int], object],
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Turn orders, and signals too, into `stop()` and `abort(signum)`, until cancelled.

        Args:
            bounds: How many seconds a stop, and an aborted one, may take.
            stop: Begins the stop; idempotent.
            abort: Cuts it short; idempotent.
            task_status: Told when both are watched.
        """
        self._stop, self._abort, self._bound = stop, abort, bounds[0]
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(signals.watch, stop, abort)
                self._loop = current_loop()
                self._carry_out()
                self.report("serving", bounds)
                task_status.started()
        finally:
            # The service has ended. A signal that now comes late must not turn that into a death.
            _ignore_signals()

    def _follow(self) -> None:
        for order in self._orders:
            match order.split():
                case [b"stop"]:
                    self._request(self._stop)
                case [b"abort", signum]:
                    self._request(partial(self._abort, int(signum)))

        logger.warning("%s: the supervising process is gone; stopping", self._name)
        self._request(self._stop)
        self._end_late()

    def _request(self, request: Callable[[], object]) -> None:
        self._requested.append(request)
        if self._loop is not None:
            self._loop.post(self._carry_out)
        elif self._bound is None:  # nothing runs yet that could be ended in order
            _die()

    def _carry_out(self) -> None:
        while self._requested:
            self._requested.popleft()()

    def _end_late(self) -> None:
        """Nobody is left who would kill a process that does not end."""
        bound = self._bound or 0.0
        if math.isinf(bound):
            return

        time.sleep(min(bound, threading.TIMEOUT_MAX))
        logger.warning("%s: not ended %g s after the supervising process; exiting", self._name, bound)
        os._exit(FAILED)


def _die(_signum: int = signal.SIGTERM) -> None:
    signal.raise_signal(signal.SIGTERM)


def _ignore_signals() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
