"""The life of one process of a service, from the supervising process's first line to its exit code."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from typing import Any, BinaryIO, NoReturn

import anyio

from pystream._processes import pipes
from pystream._processes.link import Link
from pystream._processes.setup import FAILED, UNUSABLE, Setup, configure_logging, stop_timeout
from pystream._runtime.shutdown import BOUND_WHEN_ABORTED, BROKER_BOUND
from pystream._target import TargetError, load
from pystream.app import PyStream, _backend
from pystream.errors import PyStreamError, ServiceAborted

_MARGIN = 5.0
"""Seconds that a process gets besides the bounds of its stop: for its state, and the interpreter's own end."""


def main(told: Mapping[str, Any]) -> NoReturn:
    """Run the service, and exit.

    Args:
        told: The first line on standard input: `setup`, the process's `name`, the pipe for `reports`, and
            the supervising process's `argv`.
    """
    setup = Setup(**told["setup"])
    sys.argv[:] = told["argv"]
    multiprocessing.current_process().name = told["name"]  # what %(processName)s of a service's own logging shows
    link = Link(_take_standard_input(), pipes.open_inherited(told["reports"]), told["name"])
    link.follow()
    sys.exit(_run(setup, told["name"], link))


def _take_standard_input() -> BinaryIO:
    """The pipe that standard input is; the service finds an empty one instead, and its own children too."""
    orders = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return open(orders, "rb", buffering=0)  # a buffer's lock would be held when the interpreter ends


def _run(setup: Setup, name: str, link: Link) -> int:
    try:
        _serve(setup, name, link)
    except KeyboardInterrupt:  # while the service is imported: nothing has begun that could be ended in order
        return 128 + signal.SIGINT
    except PyStreamError as error:
        _tell(error, setup, link)
        return _code(error)

    return 0


def _serve(setup: Setup, name: str, link: Link) -> None:
    app = load(setup.target)
    if setup.log_level is not None:
        configure_logging(setup.log_level, name)

    timeout = stop_timeout(app, setup.shutdown_timeout)
    backend, options = _backend(setup.backend)
    serve = partial(app._serve, timeout, partial(link.watch, _bounds(app, timeout)))
    anyio.run(serve, backend=backend, backend_options=options)


def _code(error: PyStreamError) -> int:
    if isinstance(error, ServiceAborted):
        return 128 + error.signum

    return UNUSABLE if isinstance(error, TargetError) else FAILED


def _tell(error: PyStreamError, setup: Setup, link: Link) -> None:
    if setup.log_level == logging.getLevelName(logging.DEBUG):
        traceback.print_exception(error)

    if not link.report("refused" if isinstance(error, TargetError) else "failed", str(error)):
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201  # the last one who can be told


def _bounds(app: PyStream, timeout: float) -> tuple[float, float]:
    """How many seconds a stop may take, and an aborted one, by their own bounds."""
    definition = app._definition(timeout)
    # All subscriptions together, then each broker.
    closes = len(definition.brokers) + any(mounted.registered for mounted in definition.brokers)
    return (
        timeout + 2 * definition.hook_timeout + closes * BROKER_BOUND + _MARGIN,
        (3 + closes) * BOUND_WHEN_ABORTED + _MARGIN,  # two steps of hooks, and the state
    )
