"""The demo's command: `hatch run demo`, or `python -m examples.orders.demo` in the repository's root.

Exit codes: 0 for a good run, also one that was ended with Ctrl-C; 1 if anything was lost or out
of order, or a server could not be reached or failed; 2 for a wrong argument; 130 after a second Ctrl-C.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import pystream
from anyio.abc import TaskStatus
from pystream.errors import ConfigurationError, PyStreamError

try:
    from rich.console import Console
except ImportError:
    sys.exit('demo: it needs rich; pip install "pystream[cli]"')

from examples.orders.plan import Plan
from examples.orders.report import Report
from examples.orders.run import MakeApp, Run
from examples.orders.screen import show_progress, table
from examples.orders.server import server_url
from examples.orders.service import make_app

__all__ = ["main"]

_ABORTED = 130
_SAME_REQUEST = 0.5  # seconds; a terminal and `hatch` may both hand on one Ctrl-C


def main(arguments: Sequence[str] | None = None, *, make_app: MakeApp = make_app, patience: float = 10.0) -> int:
    """Run the demo and return its exit code.

    Args:
        arguments: Of the command line; the process's own if none.
        make_app: Makes the service that is tried.
        patience: Seconds without progress after which missing messages count as lost, above 0.
    """
    options = _options(arguments)
    console = Console(stderr=options.json, highlight=False, markup=False, soft_wrap=True)
    try:
        with server_url(options.url, console.print) as url, _log() as log:
            run = Run(broker=pystream.broker(url), plan=Plan(options.messages), make_app=make_app, patience=patience)
            report = anyio.run(_run, run, console)
    except KeyboardInterrupt:
        return _refused("ended by Ctrl-C, without figures", _ABORTED)
    except PyStreamError as error:
        return _refused(str(error), 2 if isinstance(error, ConfigurationError) else 1)

    if report is None:
        return _refused("aborted by a second Ctrl-C; what was in hand is given back", _ABORTED)

    console.print(table(report))
    console.print(_verdict(report, log))
    if options.json:
        print(report.json())

    return 0 if report.is_good else 1


async def _run(run: Run, console: Console) -> Report | None:
    """The run with its progress; none if it was aborted."""
    report: Report | None = None
    failure: PyStreamError | None = None
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, run, tasks.cancel_scope)
        tasks.start_soon(show_progress, run, console)
        try:
            report = await run.go()
        except PyStreamError as error:
            failure = error

        tasks.cancel_scope.cancel()

    if failure is not None:
        raise failure

    return report


async def _watch_signals(run: Run, everything: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
    """The first signal stops the run, a second one aborts it."""
    try:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                if run.stopped_at is None:
                    run.stop()
                elif time.monotonic() - run.stopped_at >= _SAME_REQUEST:
                    everything.cancel()
                    return

    except NotImplementedError:  # Windows: Ctrl-C ends the demo at once
        task_status.started()


@contextmanager
def _log() -> Iterator[Path]:
    """Send the logs of service, plugin and client to a file: unreadable orders are errors there, as they should be."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="orders-demo-", suffix=".log", delete=False) as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(handler)
        try:
            yield Path(file.name)
        finally:
            logging.getLogger().removeHandler(handler)
            if not file.tell():
                Path(file.name).unlink()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hatch run demo", description="A small order service, its producer, and a count of what came of it."
    )
    parser.add_argument(
        "--url", help="a broker's URL, such as pulsar://localhost:6650 or memory://; default: an embedded server"
    )
    parser.add_argument(
        "--messages", type=_count, default=20_000, metavar="N", help="how many to publish, 1 or more; default: 20000"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the figures as the last line of stdout, all else on stderr"
    )
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of messages; give 1 or more")

    return int(text)


def _verdict(report: Report, log: Path) -> str:
    where = f" The service's log: {log}" if log.exists() else ""
    if report.is_good:
        return f"Nothing was lost, and each article's movements were applied in order.{where}"

    return f"{report.lost:,} lost, {report.order_violations:,} out of order: this must not happen.{where}"


def _refused(sentence: str, code: int) -> int:
    print(f"demo: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
