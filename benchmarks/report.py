"""The table on the terminal, and the page of the documentation; both from the JSON alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_METHOD = """\
# Benchmarks

What pystream costs, as ratios between rows of one run.

Every figure on this page comes from `hatch run bench`, which also writes the page.
Absolute times belong to the machine and to the moment; read the ratios.

## The message

A row handles orders: 99 bytes of JSON with five fields, validated by pydantic straight from the bytes.
The handler does nothing.
Unless the name of a row says otherwise, the service is in its default form: one delivery at a time, and
the next one is taken after the acknowledgement.

## The consume path, without a server

The floor has no framework: take from a deque, validate, await the handler, count.
The floor of `consume.bytes` does not validate.
`consume.batch64` handles batches of 64; its figures are per message, and its floor handles one at a time.
The floor of `consume.lone` is two tasks that wake each other with the loop's own futures, once each per message.
Every row runs between two runs of its floor, with garbage collection off; the ratio of a round is the
row's time over the mean of those two, and the table gives the median of the rounds and their range.
Rows are interleaved, so a disturbance of the machine hits all of them alike.
`consume.memory` takes from the memory broker, `consume.lone` publishes to it and waits until the message
is handled before it publishes the next; the other rows of `consume` take from a stand-in whose settlements do nothing.
`consume.layers4` has four layers that let everything through. `consume.reply` publishes a reply to the memory broker,
which keeps it, before the delivery is acknowledged.
`testapp.publish` is a publish in a test that runs the app over the memory broker with `TestApp`: the order is
encoded, everything is recorded, and the call returns at the end of the reaction.
"""

_EXACT = """\
Instructions are counted by callgrind with a fixed hash seed: a run that handles 2000 deliveries minus one that
handles 1000 of the same 2000. They do not depend on the load of the machine.
Memory blocks are those that a handled delivery leaves behind.
"""

_PEERS = """\
FastStream's figures are its own Kafka subscriber with its defaults, over a consumer that is a deque:
its loop, parsing, decoding, middlewares, dependency injection and the handler. Its defaults leave the commit to
the consumer, so it acknowledges nothing there. Each runs between two runs of the same floor as our row, in the same
rounds. Beside `testapp.publish` it is a publish to its own in-memory test broker.
"""

_THREADS = """\
## Threads

The floor of these rows is the same handler in the default form, on the app's own thread.
`threads.handover` is `threads=1` with the handler that does nothing: what a message pays for reaching a thread
of its own.
The other rows are `threads=4` with an `async def` handler that computes a SHA-256, which releases the GIL; its input
is as long as this machine digests in 10 us, 100 us or 1 ms at its best. Their figure is the gain in wall-clock time,
so above 1 the threads are faster. Four threads can gain no more than there are idle processors, and the shorter the
release, the more of the gain goes into the hand-over and into waiting for the GIL.
Each row runs between two runs of its floor, in the same rounds as the rows above.
"""

_LIVE = """\
## Against the client, on a real Pulsar

Four loops differ only in what carries the messages: `raw` is the client alone, drained without waiting;
`plugin` is `ConnectedPulsarBroker.subscribe` with take and acknowledge; `service` is a started app;
`pulsar.asyncio` is receive and acknowledge with the API that pulsar-client ships.
All use a SHARED subscription, the same queue of the client, and acknowledge each message after its handler.
In each round each loop gets a fresh topic, attaches to it, and the topic is filled; the window is open from then until
the last settlement. One round of calibration is discarded.
Processor time is that of the whole client process, its network thread included.
A row is server-bound when in most rounds the service's thread waited for a quarter of the time or more.
"""


def table(report: dict[str, Any]) -> str:
    """The rows for a terminal."""
    lines = [_line("row", "unit", "best", "median", "worst", "ratio", "range", "target", "verdict")]
    for row in report["rows"]:
        lines.append(_line(*_cells(row)))
        lines += [f"    {note}" for note in _notes(row)]

    against = report.get("against")
    if against is not None:
        lines.append(_compared(against))

    environment = report["environment"]
    lines.append(f"load average {environment['load_before'][0]:.2f} before, {environment['load_after'][0]:.2f} after")
    return "\n".join(lines)


def markdown(report: dict[str, Any]) -> str:
    """The page."""
    rows = report["rows"]
    threads = [row for row in rows if row["name"].startswith("threads.")]
    offline = [row for row in rows if not row["name"].startswith(("live.", "threads."))]
    live = [row for row in rows if row["name"].startswith("live.")]
    parts = [_METHOD]
    if offline:
        parts += [_rows_table(offline, "times the floor"), _exact(offline), _peers_table(offline)]

    if threads:
        parts += [_THREADS, _rows_table(threads, "against the default form")]

    for row in live:
        parts += [_LIVE] if row is live[0] else []
        parts += [f"### `{row['name']}`: {row['verdict']}\n", _loops_table(row), _comparisons_table(row)]

    parts.append(_environment(report["environment"]))
    return "\n".join(part for part in parts if part)


def _line(*cells: str) -> str:
    widths = (22, 12, 9, 9, 9, 7, 13, 7, 0)
    first, *others = [
        cell.ljust(width) if not place else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join([first, *others])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    low, high = row["ratio_range"]
    return (
        row["name"],
        row["unit"],
        _number(row["best"]),
        _number(row["median"]),
        _number(row["worst"]),
        f"{row['ratio']:.2f}",
        f"{low:.2f} to {high:.2f}",
        _number(row["target"]),
        row["verdict"],
    )


def _notes(row: dict[str, Any]) -> Iterator[str]:
    if "instructions_ratio" in row:
        floor, service = row["instructions"]
        yield (
            f"instructions {row['instructions_ratio']:.3f} times the floor, target {row['instructions_target']:g} "
            f"({floor:.0f} and {service:.0f} per delivery)"
        )

    if "blocks" in row:
        yield f"memory blocks left per delivery: {row['blocks']:g}"

    if "cpu_ratio" in row:
        yield f"messages per CPU second: {row['cpu_ratio']:.2f} of the raw loop"

    for peer in row["peers"]:
        cpu = f", per CPU second {peer['cpu_ratio']:.2f}" if "cpu_ratio" in peer else ""
        yield f"{peer['name']} {peer['version']}: {peer['ratio']:.2f}{cpu}"

    for found in row.get("comparisons", ()):
        yield (
            f"{found['of']} to {found['to']}: {found['ratio']:.2f} (target {_number(found['target'])}), "
            f"per CPU second {found['cpu_ratio']:.2f} (target {_number(found['cpu_target'])})"
        )


def _compared(against: dict[str, Any]) -> str:
    before, now = against["instructions"]
    verdict = "passed" if against["passed"] else "failed"
    return (
        f"consume.default against {against['revision']}: {before:.0f} to {now:.0f} instructions, "
        f"{against['change']:+.2%}, at most {against['limit']:+.0%}: {verdict}"
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"

    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _pipes(*rows: tuple[str, ...]) -> str:
    head, *others = ["| " + " | ".join(cells) + " |" for cells in rows]
    rule = "|" + " --- |" + " ---: |" * (len(rows[0]) - 1)
    return "\n".join([head, rule, *others]) + "\n"


def _rows_table(rows: list[dict[str, Any]], ratio: str) -> str:
    head = ("row", ratio, "range of the rounds", "target", "median", "verdict")
    return _pipes(
        head,
        *(
            (
                f"`{row['name']}`",
                f"{row['ratio']:.2f}",
                "{:.2f} to {:.2f}".format(*row["ratio_range"]),
                _number(row["target"]),
                f"{_number(row['median'])} {row['unit']}",
                row["verdict"],
            )
            for row in rows
        ),
    )


def _exact(rows: list[dict[str, Any]]) -> str:
    counted = [row for row in rows if "instructions_ratio" in row or "blocks" in row]
    if not counted:
        return ""

    head = ("row", "instructions, times the floor", "target", "memory blocks left")
    lines = [
        (
            f"`{row['name']}`",
            f"{row['instructions_ratio']:.2f}" if "instructions_ratio" in row else "-",
            _number(row.get("instructions_target")),
            _number(row.get("blocks")),
        )
        for row in counted
    ]
    return _EXACT + "\n" + _pipes(head, *lines)


def _peers_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        (f"`{row['name']}`", f"{row['ratio']:.1f}", f"{peer['name']} {peer['version']}", f"{peer['ratio']:.0f}")
        for row in rows
        for peer in row["peers"]
    ]
    if not lines:
        return ""

    return _PEERS + "\n" + _pipes(("row", "times the floor", "peer", "times the floor"), *lines)


def _loops_table(row: dict[str, Any]) -> str:
    head = ("loop", "best", "median", "worst, messages/s", "median per CPU second", "thread at work")
    lines = [
        (
            f"`{name}`",
            f"{loop['best']:.0f}",
            f"{loop['median']:.0f}",
            f"{loop['worst']:.0f}",
            f"{loop['per_cpu_second']:.0f}",
            f"{loop['busy']:.0%}",
        )
        for name, loop in row["loops"].items()
    ]
    return _pipes(head, *lines)


def _comparisons_table(row: dict[str, Any]) -> str:
    head = ("loops", "ratio of rates", "target", "ratio per CPU second", "target")
    lines = [
        (
            f"`{found['of']}` to `{found['to']}`",
            f"{found['ratio']:.2f}",
            _number(found["target"]),
            f"{found['cpu_ratio']:.2f}",
            _number(found["cpu_target"]),
        )
        for found in row["comparisons"]
    ]
    return _pipes(head, *lines)


def _environment(environment: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    before, after = environment["load_before"][0], environment["load_after"][0]
    rounds = f"{environment['rounds']} rounds, {environment['live_rounds']} of the live rows"
    lines = [
        "## Where and when\n",
        f"- {environment['date']}: {rounds}; event loop: {environment['loop']}",
        f"- {environment['machine']}, {environment['cpus']} processors",
        f"- load average {before:.1f} before and {after:.1f} after",
        f"- Python {environment['python']}; {versions}",
    ]
    if environment["server"] is not None:
        lines.append(f"- server: {environment['server']}")

    return "\n".join(lines) + "\n"
