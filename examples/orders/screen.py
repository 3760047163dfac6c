"""What the user sees: live progress on a terminal, a line a second elsewhere, and the table."""

from __future__ import annotations

import time

import anyio
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from examples.orders.report import Report
from examples.orders.run import Run

__all__ = ["show_progress", "table"]

_REFRESH = 0.1  # seconds
_LINE_EVERY = 1.0  # seconds


async def show_progress(run: Run, console: Console) -> None:
    """Show how far the run is, until cancelled. Cancel safety: the last state stays on the screen."""
    if console.is_interactive:
        await _bars(run, console)
    else:
        await _lines(run, console)


def table(report: Report) -> Table:
    """The figures of a run."""
    title = f"Orders on {report.server}"
    rows = Table(title=title, show_header=False, min_width=len(title))
    rows.add_column()
    rows.add_column(justify="right")
    for name, figure in _figures(report).items():
        rows.add_row(name, figure)

    return rows


class _Rate(ProgressColumn):
    """How many a second, lately."""

    def render(self, task: Task) -> Text:
        """The rate, or nothing before there is one."""
        return Text(f"{task.speed:>8,.0f}/s" if task.speed else "", style="cyan")


async def _bars(run: Run, console: Console) -> None:
    progress = Progress(
        *(TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), _Rate()),
        speed_estimate_period=2.0,
    )
    published = progress.add_task("published", total=run.plan.messages)
    handled = progress.add_task("handled", total=run.plan.messages - run.plan.unreadable)
    replied = progress.add_task("replied", total=run.plan.messages - run.plan.unreadable - run.plan.movements)

    def picture() -> Group:
        progress.update(published, completed=run.sent.count)
        progress.update(handled, completed=len(run.books.handled))
        progress.update(replied, completed=len(run.books.replied))
        stopping = "" if run.stopped_at is None else "; stopping, Ctrl-C again to abort"
        return Group(progress, Text(f"retried {run.books.retried:,}, dropped {run.books.dropped:,}{stopping}"))

    with Live(console=console, auto_refresh=False, get_renderable=picture) as live:
        while True:
            live.refresh()
            await anyio.sleep(_REFRESH)


async def _lines(run: Run, console: Console) -> None:
    handled, then = 0, time.monotonic()
    while True:
        await anyio.sleep(_LINE_EVERY)
        now = time.monotonic()
        rate = (len(run.books.handled) - handled) / (now - then)
        handled, then = len(run.books.handled), now
        console.print(
            f"published {run.sent.count:,} of {run.plan.messages:,}, handled {handled:,} ({rate:,.0f}/s), "
            f"replied {len(run.books.replied):,}, retried {run.books.retried:,}, dropped {run.books.dropped:,}",
        )


def _figures(report: Report) -> dict[str, str]:
    figures = {
        "published": f"{report.published:,}",
        "handled": f"{report.handled:,}",
        "replied": f"{report.replied:,}",
        "retried": f"{report.retried:,}",
        "dropped (unreadable)": f"{report.dropped:,}",
        "lost": f"{report.lost:,}",
        "order violations": f"{report.order_violations:,}",
        "duplicates": f"{report.duplicates:,}",
        "rate, in bulk": f"{report.rate:,.0f}/s",
        "latency p50, paced": _milliseconds(report.p50_ms),
        "latency p99, paced": _milliseconds(report.p99_ms),
        "duration": f"{report.seconds:.1f} s",
    }
    return {**figures, "left on the broker": f"{report.left:,}"} if report.left else figures


def _milliseconds(value: float | None) -> str:
    return "none timed" if value is None else f"{value:.1f} ms"
