"""The command line, `pystream`: needs the extra `pystream[cli]`.

Everything that goes wrong is one sentence on standard error and an exit code: 0 for a
clean stop, 1 for a service that failed, 2 for a command that cannot be run, and 128 plus
the signal's number for a service that a second signal aborted.
"""

from __future__ import annotations

import enum
import importlib.util
import logging
import signal
import traceback
from importlib.metadata import version
from typing import Annotated, Final, NoReturn

import typer

from pystream._target import TargetError, load, use_current_directory
from pystream.app import PyStream
from pystream.errors import PyStreamError, ServiceAborted

__all__ = ["Backend", "LogLevel", "cli", "run"]

cli: Final = typer.Typer(
    name="pystream",
    help="Run services that live on message streams.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
"""The typer application behind the command `pystream`."""

_SHUTDOWN_TIMEOUT: Final = 30.0
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Backend(enum.StrEnum):
    """The event loops a service can run on."""

    ASYNCIO = "asyncio"
    UVLOOP = "uvloop"
    TRIO = "trio"


class LogLevel(enum.StrEnum):
    """The levels of `--log-level`, as `logging` names them."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


def _show_version(wanted: bool) -> None:
    if not wanted:
        return

    typer.echo(f"pystream {version('pystream-core')}")
    raise typer.Exit


@cli.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run services that live on message streams."""


def _seconds(value: float | None) -> float | None:
    if value is not None and not value >= 0:
        raise typer.BadParameter(f"{value:g} is not 0 or more seconds.")

    return value


@cli.command()
def run(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Where the PyStream is, or a function that makes it.")
    ],
    backend: Annotated[Backend, typer.Option(help="The event loop to run on.")] = Backend.ASYNCIO,
    shutdown_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=_seconds,
            help="How long a stop waits for work in hand, inf for ever; by default what the app says, else 30.",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="What to log, if the service does not set up logging.")
    ] = LogLevel.INFO,
) -> None:
    """Run the service MODULE:APP until it is told to stop by SIGINT or SIGTERM."""
    _check_backend(backend)
    debug = log_level is LogLevel.DEBUG
    try:
        use_current_directory()
        app = load(target)
        _configure_logging(log_level)
        app.run(backend=backend.value, shutdown_timeout=_timeout(app, shutdown_timeout))
    except TargetError as error:
        _fail(error, 2, debug=debug)
    except ServiceAborted as error:
        _fail(error, 128 + error.signum, debug=debug)
    except PyStreamError as error:
        _fail(error, 1, debug=debug)
    except KeyboardInterrupt:  # while the service is imported: nothing has begun that could be ended in order
        raise typer.Exit(128 + signal.SIGINT) from None


def _timeout(app: PyStream, given: float | None) -> float:
    if given is not None:
        return given

    # A process that is told to stop is killed by its supervisor before long; a library call is not.
    return _SHUTDOWN_TIMEOUT if app.shutdown_timeout is None else app.shutdown_timeout


def _check_backend(backend: Backend) -> None:
    if backend is Backend.ASYNCIO or importlib.util.find_spec(backend.value) is not None:
        return

    typer.echo(
        f'Error: --backend {backend.value} needs {backend.value}: pip install "pystream[{backend.value}]"', err=True
    )
    raise typer.Exit(2)


def _configure_logging(level: LogLevel) -> None:
    """Log to standard error, unless the service has set up logging when it was imported."""
    if logging.getLogger().handlers:
        return

    logging.basicConfig(level=level.name, format=_FORMAT)


def _fail(error: PyStreamError, code: int, *, debug: bool) -> NoReturn:
    if debug:
        typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)

    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(code)
