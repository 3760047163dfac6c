"""What the process that supervises a service and the processes of the service agree on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from pystream.app import PyStream

FAILED: Final = 1
"""The exit code of a service that failed."""

UNUSABLE: Final = 2
"""The exit code of a service that cannot be run at all."""

_SHUTDOWN_TIMEOUT: Final = 30.0
_FORMAT: Final = "%(asctime)s %(levelname)s {process}%(name)s: %(message)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How the processes of a service are to be run.

    Attributes:
        target: The import string, `module:app`.
        processes: How many there are, 2 or more.
        backend: `asyncio`, `uvloop` or `trio`.
        shutdown_timeout: In place of the app's own, if given.
        log_level: What to log, or none to leave logging to the service.
    """

    target: str
    processes: int
    backend: str
    shutdown_timeout: float | None = None
    log_level: str | None = None


def stop_timeout(app: PyStream, given: float | None) -> float:
    """How long a stop of this app waits for work in hand, in seconds."""
    if given is not None:
        return given

    # A process that is told to stop is killed by its supervisor before long; a library call is not.
    return _SHUTDOWN_TIMEOUT if app.shutdown_timeout is None else app.shutdown_timeout


def configure_logging(level: str, process: str | None = None) -> None:
    """Log to standard error, unless the service has set up logging when it was imported.

    Args:
        level: As `logging` names it.
        process: What tells the lines of this process from those of others, or none.
    """
    if logging.getLogger().handlers:
        return

    logging.basicConfig(level=level, format=_FORMAT.format(process=f"[{process}] " if process else ""))
