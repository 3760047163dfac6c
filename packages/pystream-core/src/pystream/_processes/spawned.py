"""A process of a service, as the supervising process sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from pystream._processes import pipes
from pystream._processes.setup import Setup

# Modules are found where the supervising process finds them, whatever lies in the current directory.
_CODE: Final = (
    "import json, sys; told = json.loads(open(0, 'rb', 0, closefd=False).readline()); sys.path[:] = told['path']; "
    "from pystream._processes.child import main; main(told)"
)
_LAST_REPORT: Final = 0.5  # seconds: a process of the service's own may hold the pipe open


@dataclass(frozen=True, slots=True)
class Report:
    """What a process has told: that it serves, that its import string names no app, or why it failed."""

    process: Spawned
    kind: Literal["serving", "refused", "failed"]
    told: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """That a process has ended, with this code (negative: by that signal), at this moment."""

    process: Spawned
    code: int
    at: float


Happened: TypeAlias = Report | Ended


class Spawned:
    """A running process of the service.

    Args:
        setup: How it is run.
        number: Which one it is, from 1.
        happened: Called from other threads with what it reports, and last with its end.

    Attributes:
        number: As given.
        name: What the process is called in the log.
        pid: The process's id.
        ended: Whether its end has been handled.
        bounds: How many seconds it may take to stop, and to stop once it was aborted; none before it serves.
        reason: Why it failed, in a sentence, if it could tell.
        killed: What was waited for in vain before it was killed, or none.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, setup: Setup, number: int, happened: Callable[[Happened], object]) -> None:
        self.number = number
        self.name = f"process-{number}"
        self.ended = False
        self.bounds: tuple[float, float] | None = None
        self.reason: str | None = None
        self.killed: str | None = None
        self._happened = happened
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the interpreter that runs this, with text of ours
                [sys.executable, "-P", *_interpreter_flags(), "-c", _CODE, setup.target, self.name],
                stdin=subprocess.PIPE,
                **pipes.inheriting(writing),
            )
            self._write(json.dumps(self._told(setup, writing)))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)

        self.pid = self._process.pid
        self._reader = self._start(self._read, reading)
        self._start(self._wait)

    def stop(self) -> None:
        """Begin its graceful stop. Idempotent."""
        self._write("stop")

    def abort(self, signum: int) -> None:
        """Cut its stop short. Idempotent."""
        self._write(f"abort {signum}")

    def kill(self, late: str) -> None:
        """End it at once, because of what was waited for in vain."""
        self.killed = late
        self._process.kill()

    def close(self) -> None:
        """Forget it, once it has ended."""
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):  # what it was not there to read
                self._process.stdin.close()

    def _told(self, setup: Setup, writing: int) -> dict[str, Any]:
        return {
            "setup": asdict(setup),
            "name": self.name,
            "reports": pipes.inherited(writing),
            "path": sys.path,
            "argv": sys.argv,
        }

    def _write(self, line: str) -> None:
        if self._process.stdin is None:
            return

        with suppress(OSError):  # it has ended, which is noticed elsewhere
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _start(self, run: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=run, args=args, name=f"{self.name} {run.__name__.strip('_')}", daemon=True)
        thread.start()
        return thread

    def _read(self, reading: int) -> None:
        with open(reading, "rb") as reports:
            for line in reports:
                self._happened(Report(self, *json.loads(line)))

    def _wait(self) -> None:
        code = self._process.wait()
        at = time.monotonic()
        self._reader.join(_LAST_REPORT)
        self._happened(Ended(self, code, at))


def _interpreter_flags() -> Iterator[str]:
    """What the supervising process's own interpreter was told on its command line."""
    if sys.flags.optimize:
        yield f"-{'O' * sys.flags.optimize}"

    yield from (f"-W{option}" for option in sys.warnoptions)
    yield from (f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items())
