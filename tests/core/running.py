"""A command that goes on running, its output read meanwhile."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.core.command import SECONDS, environment

Start = Callable[..., "Service"]


class Service:
    """A running `pystream run`; its lines are read by threads, so that waiting for one is bounded.

    Args:
        folder: The working directory.
        *arguments: What follows the program.
        program: What the interpreter is told to run.
        **changes: Environment variables to set.
    """

    def __init__(
        self, folder: Path, *arguments: str, program: Sequence[str] = ("-m", "pystream", "run"), **changes: str
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=folder,
            env=environment(**changes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._unread: list[str] = []
        self._err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._err.append(line)

    def until(self, wanted: str) -> None:
        """Return when the line has been printed."""
        while self._next() != wanted:
            pass

    def lines(self, start: str, count: int) -> list[str]:
        """What follows `start` in the first so many lines that begin with it; other lines stay to be read."""
        found: list[str] = []
        others: list[str] = []
        while len(found) < count:
            line = self._next()
            if line.startswith(start):
                found.append(line.removeprefix(start))
            else:
                others.append(line)

        self._unread[:0] = others
        return found

    def _next(self) -> str:
        return self._unread.pop(0) if self._unread else self._lines.get(timeout=SECONDS)

    def logged(self, text: str) -> None:
        """Return when standard error contains the text."""
        deadline = time.monotonic() + SECONDS
        while not any(text in line for line in self._err):
            assert time.monotonic() < deadline, self._err
            time.sleep(0.01)

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def send_group(self, signum: signal.Signals) -> None:
        """Send it to every process of the service, as a terminal does."""
        os.killpg(self.process.pid, signum)

    def end(self) -> tuple[int, list[str], str]:
        """Wait for the end of all that write to its output; the exit code, the lines not yet read, and the errors."""
        code = self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
            assert not reader.is_alive()

        return code, [*self._unread, *self._lines.queue], "".join(self._err)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.send_group(signal.SIGKILL)

        self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)

        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
