"""Starts the processes of a service, passes on what it is told, and ends when all have ended."""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pystream._processes.setup import Setup
from pystream._processes.spawned import Ended, Happened, Report, Spawned
from pystream._processes.verdict import Verdict
from pystream._target import TargetError

logger = logging.getLogger("pystream.processes")

_LOOK: Final = 0.25  # seconds: a signal that another thread has got, or Windows, does not end a wait
_BOUND_BEFORE_SERVING: Final = 5.0  # seconds: nothing has begun that could be ended in order


@dataclass(frozen=True, slots=True)
class _Signalled:
    signum: int
    at: float


def supervise(setup: Setup) -> None:
    """Run a service in several processes until it is told to stop or one of them ends.

    Args:
        setup: How they are run.

    Raises:
        TargetError: The import string names no app.
        ServiceFailed: A process failed or could not be started, or did not end; `ServiceAborted`
            after a second signal.
    """
    supervisor = _Supervisor(setup)
    with supervisor.signals():
        supervisor.run()


class _Supervisor:
    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._verdict = Verdict(setup.target, setup.processes)
        # Signal handlers put into it too, at any moment: only this kind of queue allows that.
        self._happened: queue.SimpleQueue[Happened | _Signalled] = queue.SimpleQueue()
        self._processes: list[Spawned] = []
        self._stopped_at: float | None = None
        self._aborted_at: float | None = None
        self._refused: str | None = None

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take the signals that stop a service; in the main thread only, as `PyStream.serve`."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        before = {signum: signal.signal(signum, self._signalled) for signum in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    def run(self) -> None:
        """From the first process's start to the last one's end."""
        try:
            self._spawn([1])
            self._follow()
        finally:
            for process in self._processes:
                process.close()

        if self._refused is not None:
            raise TargetError(self._refused)

        failure = self._verdict.failure()
        if failure is not None:
            raise failure

    def _signalled(self, signum: int, _frame: object) -> None:
        self._happened.put(_Signalled(signum, time.monotonic()))

    def _spawn(self, numbers: list[int] | range) -> None:
        for number in numbers:
            try:
                process = Spawned(self._setup, number, self._happened.put)
            except OSError as error:
                self._verdict.unstarted(number, error)
                self._stop()
                return

            self._processes.append(process)
            logger.info("%s: %s of %d is pid %d", self._setup.target, process.name, self._setup.processes, process.pid)

    def _follow(self) -> None:
        while self._running() or self._verdict.in_doubt(time.monotonic()):
            self._kill_late_ones()
            try:
                happened = self._happened.get(timeout=_LOOK)
            except queue.Empty:
                continue

            match happened:
                case _Signalled():
                    self._obey(happened)
                case Report():
                    self._note(happened)
                case Ended():
                    self._end(happened)

    def _running(self) -> list[Spawned]:
        return [process for process in self._processes if not process.ended]

    def _obey(self, signalled: _Signalled) -> None:
        match self._verdict.signalled(signalled.signum, signalled.at):
            case "stop":
                self._stop()
            case "abort":
                self._abort(signalled.signum)
            case None:
                pass

    def _note(self, report: Report) -> None:
        process = report.process
        if report.kind != "serving":
            process.reason = report.told
            alone = report.kind == "refused" and process.number == 1
            self._refused = report.told if alone else self._refused
            return

        process.bounds = tuple(report.told)
        # The first one has shown that the service can be loaded; what is wrong with it is told once.
        if process.number == 1 and not self._verdict.stopping:
            self._spawn(range(2, self._setup.processes + 1))

    def _end(self, ended: Ended) -> None:
        ended.process.ended = True
        if self._refused is None:
            self._verdict.ended(ended)

        if self._verdict.stopping:
            self._stop()

    def _stop(self) -> None:
        if self._stopped_at is not None:
            return

        self._stopped_at = time.monotonic()
        running = self._running()
        logger.info("%s: stopping (%d of %d processes)", self._setup.target, len(running), self._setup.processes)
        for process in running:
            process.stop()

    def _abort(self, signum: int) -> None:
        if self._aborted_at is not None:
            return

        self._aborted_at = time.monotonic()
        for process in self._running():
            process.abort(signum)

    def _kill_late_ones(self) -> None:
        for process in self._running():
            waited = self._waited(process)
            if waited is None or process.killed is not None:
                continue

            seconds, since = waited
            if time.monotonic() - since < seconds:
                continue

            late = f"it had not ended {seconds:g} s after the stop"
            logger.warning("%s: %s (pid %d) is killed: %s", self._setup.target, process.name, process.pid, late)
            process.kill(late)

    def _waited(self, process: Spawned) -> tuple[float, float] | None:
        """How many seconds the process has to end, and since when; none before a stop."""
        if self._stopped_at is None:
            return None

        if self._aborted_at is not None:
            return process.bounds[1] if process.bounds else _BOUND_BEFORE_SERVING, self._aborted_at

        return process.bounds[0] if process.bounds else _BOUND_BEFORE_SERVING, self._stopped_at
