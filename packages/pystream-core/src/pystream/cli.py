"""The command line, `pystream`: needs the extra `pystream[cli]`.

Everything that goes wrong is one sentence on standard error and an exit code: 0 for a
clean stop, 1 for a service that failed, or one of its processes, 2 for a command that cannot
be run, and 128 plus the signal's number for a service that a second signal aborted.
"""

from __future__ import annotations

import enum
import importlib.util
import signal
import traceback
from importlib.metadata import version
from typing import Annotated, Final, NoReturn

import typer

from pystream._processes.setup import Setup, configure_logging, stop_timeout
from pystream._target import TargetError, load, use_current_directory
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


def _count(value: int) -> int:
    if value < 1:
        raise typer.BadParameter(f"{value} is not 1 or more.")

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
    processes: Annotated[
        int, typer.Option(metavar="N", callback=_count, help="How many processes, each the whole service.")
    ] = 1,
) -> None:
    """Run the service MODULE:APP until it is told to stop by SIGINT or SIGTERM."""
    _check_backend(backend)
    debug = log_level is LogLevel.DEBUG
    setup = Setup(
        target=target,
        processes=processes,
        backend=backend.value,
        shutdown_timeout=shutdown_timeout,
        log_level=log_level.name,
    )
    try:
        use_current_directory()
        _run(setup, log_level)
    except TargetError as error:
        _fail(error, 2, debug=debug)
    except ServiceAborted as error:
        _fail(error, 128 + error.signum, debug=debug)
    except PyStreamError as error:
        _fail(error, 1, debug=debug)
    except KeyboardInterrupt:  # while the service is imported: nothing has begun that could be ended in order
        raise typer.Exit(128 + signal.SIGINT) from None


def _run(setup: Setup, log_level: LogLevel) -> None:
    if setup.processes > 1:
        from pystream._processes.supervisor import supervise

        configure_logging(log_level.name, "supervisor")
        supervise(setup)
        return

    app = load(setup.target)
    configure_logging(log_level.name)
    app.run(backend=setup.backend, shutdown_timeout=stop_timeout(app, setup.shutdown_timeout))


def _check_backend(backend: Backend) -> None:
    if backend is Backend.ASYNCIO or importlib.util.find_spec(backend.value) is not None:
        return

    typer.echo(
        f'Error: --backend {backend.value} needs {backend.value}: pip install "pystream[{backend.value}]"', err=True
    )
    raise typer.Exit(2)


def _fail(error: PyStreamError, code: int, *, debug: bool) -> NoReturn:
    if debug:
        typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)

    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(code)
