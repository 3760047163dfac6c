"""`python -m pystream_testing.conformance.report --json FILE`: what the suite checks, and whether it can fail."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypedDict

import anyio

from pystream_testing.conformance._check import Check
from pystream_testing.conformance._failure import ConformanceFailure
from pystream_testing.conformance.brokers import FAULTS, HONEST, Fault, Honest
from pystream_testing.conformance.suite import checks

__all__ = ["FaultRow", "Report", "main", "make_report"]


_AT_ONCE = 8


class FaultRow(TypedDict):
    """A broker that is wrong on purpose, and the check meant for it, or none if that check accepted it."""

    name: str
    rejected_by: str | None


class Report(TypedDict):
    """The names of the checks, the faults with what rejected them, and the honest brokers that passed."""

    checks: list[str]
    faults: list[FaultRow]
    honest: list[str]


def make_report(say: Callable[[str], object] = lambda _line: None) -> Report:
    """Try every faulty broker with its check, and every honest one with all that apply.

    Args:
        say: Told what is wrong with the suite itself, a line each.
    """
    by_name = {check.name: check for check in checks()}
    # Side by side, for nearly all of it is waiting in vain.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rejected = pool.map(lambda fault: _rejected_by(by_name, fault, say), FAULTS)
        passed = pool.map(lambda honest: _passes(by_name, honest, say), HONEST)

    return Report(
        checks=list(by_name),
        faults=[FaultRow(name=fault.name, rejected_by=by) for fault, by in zip(FAULTS, rejected, strict=True)],
        honest=[honest.name for honest, well in zip(HONEST, passed, strict=True) if well],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report; the exit code is 1 if a fault was accepted or an honest broker refused.

    Args:
        arguments: The command line without the program; none for that of the process.
    """
    parser = argparse.ArgumentParser(prog="conformance-report", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the report is written; else standard output")
    path: Path | None = parser.parse_args(arguments).json
    logging.getLogger("pystream").addHandler(logging.NullHandler())  # stops that are cut short, and say so
    report = make_report(_complain)
    text = json.dumps(report, indent=2) + "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        path.write_text(text, "utf-8")

    rejected = all(row["rejected_by"] for row in report["faults"])
    return 0 if rejected and len(report["honest"]) == len(HONEST) else 1


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")


def _rejected_by(by_name: dict[str, Check], fault: Fault, say: Callable[[str], object]) -> str | None:
    failure = _failure(by_name[fault.rejected_by], fault)
    if failure is not None and fault.because in failure:
        return fault.rejected_by

    say(f"{fault.rejected_by} is meant for {fault.name}, and {f'said: {failure}' if failure else 'accepted it'}")
    return None


def _passes(by_name: dict[str, Check], honest: Honest, say: Callable[[str], object]) -> bool:
    passed = True
    for check in by_name.values():
        if check.skipped_for(honest.capabilities) is None:
            failure = _failure(check, honest)
            if failure is not None:
                say(f"{check.name} refused the honest broker {honest.name}: {failure}")
                passed = False

    return passed


def _failure(check: Check, broker: Fault | Honest) -> str | None:
    try:
        anyio.run(check.run, broker.subject())
    except ConformanceFailure as failure:
        return str(failure)

    return None


if __name__ == "__main__":
    sys.exit(main())
