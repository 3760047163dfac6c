"""The one entry: `hatch run bench [--quick] [--live] [--only NAME] [--against REV] --json FILE`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import anyio

from benchmarks import counting, peers, threads
from benchmarks.consume import ROWS, floor
from benchmarks.lone import lone, lone_floor
from benchmarks.measuring import FASTER, Series, row
from benchmarks.reply import to_memory
from benchmarks.report import markdown, table
from benchmarks.testapp import testapp

SCHEMA = 1
OFFLINE = {
    **ROWS,
    "consume.lone": (lone_floor, lone, None),
    "consume.reply": (floor, to_memory, 6.0),
    **threads.ROWS,
    "testapp.publish": (floor, testapp, 25.0),
}
LIVE = ("live.consume.batched", "live.consume.single")
URL_VARIABLE = "PYSTREAM_PULSAR_URL"

_INSTRUCTIONS_TARGET = 2.0
_PEER_SHARE = 20  # a peer gets fewer deliveries per round: it needs that much longer for each
_PACKAGES = ("pystream-core", "pydantic", "pydantic-core", "anyio", "uvloop", "trio", "pulsar-client", "faststream")


class _Options(argparse.Namespace):
    quick: bool
    live: bool
    only: list[str] | None
    against: str | None
    loop: str
    json: Path | None
    markdown: Path | None
    read: Path | None


def main() -> int:
    """Measure what was asked for, print the table, write the files."""
    parser = _parser()
    options = parser.parse_args(namespace=_Options())
    if options.read is not None:
        report = json.loads(options.read.read_text())
    else:
        logging.disable(logging.CRITICAL)
        report = _measured(options, parser)

    sys.stdout.write(table(report) + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n")

    if options.markdown is not None:
        options.markdown.write_text(markdown(report))

    return 0 if report.get("against", {"passed": True})["passed"] else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer deliveries; within three minutes without a server")
    parser.add_argument("--live", action="store_true", help=f"also the live rows, on the server of {URL_VARIABLE}")
    parser.add_argument("--only", action="append", choices=[*OFFLINE, *LIVE], metavar="NAME", help="a row; repeatable")
    parser.add_argument("--against", metavar="REV", help="compare the instructions of consume.default with a revision")
    parser.add_argument("--loop", choices=["asyncio", "uvloop", "trio"], default="asyncio", help="the event loop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page of the documentation there")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing; take the report from there")
    return parser


def _measured(options: _Options, parser: argparse.ArgumentParser) -> dict[str, Any]:
    names = options.only or [*OFFLINE, *(LIVE if options.live else ())]
    live = [name for name in names if name in LIVE]
    url = os.environ.get(URL_VARIABLE)
    if live and not url:
        parser.error(f"{', '.join(live)}: set {URL_VARIABLE} to the service URL of a Pulsar server")

    if live and options.loop == "trio":
        parser.error("the live rows run on asyncio or uvloop: the client's own API knows no other loop")

    rounds, live_rounds = (7, 5) if options.quick else (11, 7)
    environment = _environment(options.loop, rounds, live_rounds)
    rows: list[dict[str, Any]] = []
    report: dict[str, Any] = {"schema": SCHEMA, "environment": environment, "rows": rows}
    try:
        rows += _offline([name for name in names if name in OFFLINE], options, rounds)
        if options.against is not None:
            _log(f"counting instructions against {options.against}")
            report["against"] = counting.compare(options.against)
    except (counting.CountingError, subprocess.TimeoutExpired) as error:
        parser.error(str(error))

    if url and live:
        environment["server"] = anyio.run(_server, url)
        count = 5_000 if options.quick else 30_000
        rows += [_run(options.loop, _live, name, url, count, live_rounds) for name in live]

    environment["load_after"] = os.getloadavg()
    return report


def _offline(names: list[str], options: _Options, rounds: int) -> list[dict[str, Any]]:
    if options.loop == "trio":
        names = [name for name in names if name != "consume.lone"]  # its floor is asyncio's

    if not names:
        return []

    rows: list[dict[str, Any]] = _run(
        options.loop, _consume, names, 4_000 if options.quick else 20_000, rounds, options.loop
    )
    exact = _exact() if "consume.default" in names and options.loop == "asyncio" else {}
    return [found | exact if found["name"] == "consume.default" else found for found in rows]


async def _consume(names: list[str], count: int, rounds: int, loop: str) -> list[dict[str, Any]]:
    subjects = {} if loop == "trio" else peers.faststream_rows()
    ours = {name: Series() for name in names}
    theirs = {name: Series() for name in names if name in subjects}
    for number in range(1, rounds + 1):
        for name in names:
            floor, subject, _ = OFFLINE[name]
            own = count // threads.GAINS.get(name, 1)
            await ours[name].add(floor, subject, own, own)
            if name in theirs:
                await theirs[name].add(floor, subjects[name], count // _PEER_SHARE, count // 4)

        _log(f"round {number} of {rounds}")

    return [_row(name, ours[name], theirs.get(name)) for name in names]


def _row(name: str, ours: Series, theirs: Series | None) -> dict[str, Any]:
    if name in threads.GAINS:
        gains = [1 / ratio for ratio in ours.ratios]
        return row(name, FASTER, gains, gains, None)

    microseconds = [seconds * 1e6 for seconds in ours.seconds]
    result = row(name, "us", microseconds, ours.ratios, OFFLINE[name][2])
    if theirs is not None:
        peer, its_version = peers.faststream_name()
        found = row(peer, "us", [seconds * 1e6 for seconds in theirs.seconds], theirs.ratios, None)
        result["peers"] = [{"name": peer, "version": its_version, "ratio": found["ratio"], "median": found["median"]}]

    return result


def _exact() -> dict[str, Any]:
    """Blocks, and instructions where valgrind is there."""
    found: dict[str, Any] = {"blocks": round(anyio.run(counting.blocks), 2)}
    if not counting.can_count():
        _log("valgrind is not installed: no instructions are counted")
        return found

    _log("counting instructions")
    try:
        floor, service = counting.instructions(("floor", "service"))
    except (
        counting.CountingError,
        subprocess.TimeoutExpired,
    ) as error:  # the other figures are worth having without it
        _log(f"no instructions are counted: {error}")
        return found

    return found | {
        "instructions": [floor, service],
        "instructions_ratio": service / floor,
        "instructions_target": _INSTRUCTIONS_TARGET,
    }


async def _live(name: str, url: str, count: int, rounds: int) -> dict[str, Any]:
    from benchmarks import live  # needs pulsar-client

    return await live.measure(name, url, count=count, rounds=rounds, log=_log)


async def _server(url: str) -> str:
    from pystream.clock import LoopClock
    from pystream_pulsar import PulsarBroker

    connection = await PulsarBroker(url).connect(LoopClock())
    try:
        return connection.info.version or "unknown"
    finally:
        await connection.close()


def _run(loop: str, function: Any, *arguments: Any) -> Any:
    if loop == "trio":
        return anyio.run(function, *arguments, backend="trio")

    return anyio.run(function, *arguments, backend_options={"use_uvloop": loop == "uvloop"})


def _environment(loop: str, rounds: int, live_rounds: int) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg(),
        "python": platform.python_version(),
        "versions": dict(_versions()),
        "loop": loop,
        "rounds": rounds,
        "live_rounds": live_rounds,
        "server": None,
    }


def _versions() -> Any:
    for package in _PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _log(message: str) -> None:
    sys.stderr.write(f"bench: {message}\n")


if __name__ == "__main__":
    sys.exit(main())
