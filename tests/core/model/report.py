"""`python -m tests.core.model.report`: the model tests at length, and what came of them.

Writes `report.json` beside this file, and `report.md` from that alone. Fails, and writes
nothing, if a form is rejected, a broken one is not, or memory grows.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from tests.core.model.cases import CASES
from tests.core.model.endurance import BLOCKS_PER_THOUSAND, RESIDENT_GROWTH, Endurance, Figures
from tests.core.model.faults import FAULTS
from tests.core.model.searching import BACKENDS, explore, quiet_log, reject

__all__ = ["JSON", "MARKDOWN", "EnduranceRow", "FaultRow", "FormRow", "Report", "main", "render"]

JSON = Path(__file__).with_name("report.json")
MARKDOWN = Path(__file__).with_name("report.md")

_EXAMPLES = 5000
_RUNS = 10  # of so many seeds each form's examples are made; each can be played again by itself
_OTHER_LOOPS = 5  # uvloop and trio play a fifth of them
_REJECTIONS = 10  # of each broken form, by the check that is meant for it
_DELIVERIES = 1_000_000


class FormRow(TypedDict):
    """One form on one loop."""

    form: str
    loop: str
    examples: int
    seeds: list[int]
    seconds: float
    processor: float
    bound: int
    reached: int


class FaultRow(TypedDict):
    """One broken form: what rejected how many schedules, and when the check that is meant for it did so first."""

    fault: str
    form: str
    check: str
    first: int | None
    examples: int
    rejections: dict[str, int]
    seconds: float


class EnduranceRow(TypedDict):
    """One run of a million: deliveries, blocks and resident bytes after each tenth."""

    workers: int
    seconds: float
    figures: list[tuple[int, int, int]]


class Report(TypedDict):
    """Everything."""

    python: str
    forms: list[FormRow]
    faults: list[FaultRow]
    endurance: list[EnduranceRow]


def _forms(examples: int, names: list[str]) -> Iterator[FormRow]:
    for name in names:
        for loop in BACKENDS:
            each = examples // _RUNS if loop == "asyncio" else examples // _RUNS // _OTHER_LOOPS
            yield _form(name, loop, max(each, 1))


def _form(name: str, loop: str, each: int) -> FormRow:
    row = FormRow(form=name, loop=loop, examples=0, seeds=[], seconds=0.0, processor=0.0, bound=0, reached=0)
    for number in range(1, _RUNS + 1):
        run = explore(CASES[name], BACKENDS[loop], examples=each, number=number)
        row["examples"] += run.examples
        row["seeds"].append(number)
        row["seconds"] = round(row["seconds"] + run.seconds, 1)
        row["processor"] = round(row["processor"] + run.processor, 1)
        row["bound"], row["reached"] = run.bound, max(row["reached"], run.most)

    return row


def _faults(examples: int) -> Iterator[FaultRow]:
    for name, fault in FAULTS.items():
        started = time.perf_counter()
        verdict = reject(fault, examples=examples, number=1, enough=_REJECTIONS)
        yield FaultRow(
            fault=name,
            form=fault.case,
            check=fault.check,
            first=verdict.first,
            examples=verdict.examples,
            rejections=dict(sorted(verdict.rejections.items())),
            seconds=round(time.perf_counter() - started, 1),
        )


def _endurance(deliveries: int) -> Iterator[EnduranceRow]:
    for workers in (1, 16):
        # In a process of its own, so that nothing but the deliveries counts.
        arguments = ["--workers", str(workers), "--deliveries", str(deliveries)]
        module = "tests.core.model.endurance"
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=600, check=False
        )
        if not done.stdout:
            raise RuntimeError(done.stderr)

        answer = json.loads(done.stdout)
        figures = [(row["deliveries"], row["blocks"], row["resident"]) for row in answer["figures"]]
        yield EnduranceRow(workers=workers, seconds=round(answer["seconds"], 1), figures=figures)


def endurance_of(row: EnduranceRow) -> Endurance:
    """The run that a row tells of."""
    return Endurance(row["workers"], row["seconds"], tuple(Figures(*figures) for figures in row["figures"]))


def complaints(report: Report) -> list[str]:
    """What must not be: one sentence each."""
    return [
        *(
            f"{row['form']} on {row['loop']} reached {row['reached']}, not {row['bound']}"
            for row in report["forms"]
            if row["reached"] != row["bound"]
        ),
        *(f"no {row['check']!r} for: {row['fault']}" for row in report["faults"] if row["first"] is None),
        *(
            f"memory grows with {row['workers']} workers"
            for row in report["endurance"]
            if not endurance_of(row).is_flat
        ),
    ]


def render(report: Report) -> str:
    """The report as a page."""
    return "\n".join([*_page_of_forms(report), *_page_of_faults(report), *_page_of_endurance(report)])


def _page_of_forms(report: Report) -> Iterator[str]:
    yield "# The model tests at length\n"
    yield "Written by `hatch run test:long`; the figures stand in `report.json`.\n"
    yield f"{report['python']}. `seconds` are those of a machine that others use, too; `processor` is what they cost.\n"
    yield "## Forms\n"
    yield "Random schedules of arrivals, keys, durations, failures and stops, compared with the model move by move."
    yield "Examples are made from the seeds in equal parts. `in hand` is the largest number of unsettled deliveries"
    yield "that was seen, and the bound for the largest n that was tried.\n"
    yield "| form | loop | examples | seeds | seconds | processor | in hand | bound | verdict |"
    yield "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | --- |"
    for row in report["forms"]:
        seeds = f"{min(row['seeds'])} to {max(row['seeds'])}"
        yield (
            f"| `{row['form']}` | {row['loop']} | {row['examples']:,} | {seeds} "
            f"| {row['seconds']} | {row['processor']} | {row['reached']} | {row['bound']} | accepted |"
        )


def _page_of_faults(report: Report) -> Iterator[str]:
    yield "\n## Broken forms\n"
    yield "Each has one fault. `first` is the number of the schedule with which the check that is meant for the fault"
    yield f"rejected it; schedules were played until that had happened {_REJECTIONS} times. The last column counts"
    yield "what all checks rejected meanwhile. The seed is 1.\n"
    yield "| fault | form | check | first | examples | rejections |"
    yield "| --- | --- | --- | ---: | ---: | --- |"
    for row in report["faults"]:
        rejections = ", ".join(f"{check} {count}" for check, count in row["rejections"].items())
        head = f"| {row['fault']} | `{row['form']}` | {row['check']} "
        yield f"{head}| {row['first']} | {row['examples']:,} | {rejections} |"


def _page_of_endurance(report: Report) -> Iterator[str]:
    yield "\n## Memory\n"
    yield "Deliveries through one app on the memory broker; some suspend, some are retried, some have a continuation."
    yield f"Admitted are {BLOCKS_PER_THOUSAND:g} blocks for each thousand deliveries and {RESIDENT_GROWTH >> 20} MiB,"
    yield "between the first tenth and the last.\n"
    yield "| workers | deliveries | seconds | blocks | resident, KiB | blocks for each thousand | growth, KiB |"
    yield "| ---: | ---: | ---: | --- | --- | ---: | ---: |"
    for row in report["endurance"]:
        result = endurance_of(row)
        first, last = result.figures[0], result.figures[-1]
        yield (
            f"| {row['workers']} | {last.deliveries:,} | {row['seconds']} | {first.blocks:,} to {last.blocks:,} "
            f"| {first.resident >> 10:,} to {last.resident >> 10:,} "
            f"| {result.blocks_per_thousand:.3f} | {result.growth >> 10} |"
        )

    yield ""


def _told(rows: Iterator[Any]) -> list[Any]:
    """The rows, each shown as soon as it is there."""
    answer = []
    for row in rows:
        print(json.dumps(row), flush=True)
        answer.append(row)

    return answer


def main(arguments: list[str]) -> int:
    """Run everything and write the report; answers 1, and writes nothing, if something must not be."""
    parser = argparse.ArgumentParser(prog="python -m tests.core.model.report")
    parser.add_argument("--examples", type=int, default=_EXAMPLES, help="for each form; %(default)s by default")
    parser.add_argument("--deliveries", type=int, default=_DELIVERIES)
    parser.add_argument("--form", choices=CASES, action="append", help="this form alone; then nothing is written")
    options = parser.parse_args(arguments)
    with quiet_log():
        report = Report(
            python=f"{platform.python_implementation()} {platform.python_version()}",
            forms=_told(_forms(options.examples, options.form or list(CASES))),
            faults=[] if options.form else _told(_faults(options.examples)),
            endurance=[] if options.form else _told(_endurance(options.deliveries)),
        )

    for complaint in complaints(report):
        print(complaint)

    if complaints(report):
        return 1

    if not options.form:
        JSON.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
        MARKDOWN.write_text(render(report), "utf-8")

    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
