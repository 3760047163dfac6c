"""Runs a service from its import string, in this process or in several."""

from __future__ import annotations

from pystream._processes.setup import Setup, stop_timeout
from pystream._target import load
from pystream.app import _backend
from pystream.errors import ConfigurationError

__all__ = ["run"]


def run(target: str, *, processes: int = 1, backend: str = "asyncio", shutdown_timeout: float | None = None) -> None:
    """Run a service until a signal or a failure stops it; the command `pystream run` as a function.

    Each of several processes is a fresh interpreter that loads the whole app. This one passes
    signals on to them. When one of them ends by itself, the others are stopped.

    Args:
        target: `module:app`: a module's dotted name, and the `PyStream` in it or a function that
            takes no arguments and makes one.
        processes: How many, 1 or more. One runs right here.
        backend: `asyncio`, `uvloop` or `trio`.
        shutdown_timeout: Seconds that a stop waits for deliveries in hand and tracked tasks, 0 or
            more; none for the app's own, else 30.

    Raises:
        ConfigurationError: An argument cannot work, or `target` names no app.
        ServiceFailed: The service failed, or one of its processes; `ServiceAborted` after a second signal.
    """
    _check(processes, shutdown_timeout)
    if processes == 1:
        app = load(target)
        app.run(backend=backend, shutdown_timeout=stop_timeout(app, shutdown_timeout))
        return

    from pystream._processes.supervisor import supervise  # most services need none of it

    _backend(backend)  # refused once, not by every process
    supervise(Setup(target=target, processes=processes, backend=backend, shutdown_timeout=shutdown_timeout))


def _check(processes: int, shutdown_timeout: float | None) -> None:
    if not isinstance(processes, int) or processes < 1:
        raise ConfigurationError(f"run(processes={processes!r}): give a whole number, 1 or more")

    if shutdown_timeout is None or (isinstance(shutdown_timeout, int | float) and shutdown_timeout >= 0):
        return

    raise ConfigurationError(
        f"run(shutdown_timeout={shutdown_timeout!r}): give seconds, 0 or more, or None for the app's own"
    )
