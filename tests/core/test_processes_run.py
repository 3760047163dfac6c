"""`pystream.run`: the command as a function, in one process and in several."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pystream
import pytest
from pystream.errors import ConfigurationError, ProcessEnded, ServiceFailed

from tests.core.running import Service, Start
from tests.core.services import write_services
from tests.core.several import write_several


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the services."""
    write_several(tmp_path)
    write_services(tmp_path)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts programs, and ends what a failed test has left running."""
    started: list[Service] = []

    def begin(text: str, *arguments: str, flags: list[str] | None = None) -> Service:
        (folder / "program.py").write_text(dedent(text))
        started.append(Service(folder, *arguments, program=[*(flags or []), "program.py"]))
        return started[-1]

    yield begin

    for service in started:
        service.close()


@pytest.mark.promise("CLI-21")
def test_several_processes_of_a_program_without_a_guard(start: Start) -> None:
    """A program that does nothing but call it need not guard against being imported again."""
    service = start("""
        import pystream

        pystream.run("shop:app", processes=2)
        print("over", flush=True)
    """)
    service.lines("ready ", 2)
    service.send(signal.SIGTERM)

    code, lines, err = service.end()
    assert (code, err) == (0, "")
    assert len(lines) == 3
    assert lines[-1] == "over"


@pytest.mark.promise("CLI-21")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("'told:app'", "billing asyncio 30.0"),
        ("'told:patient', processes=1", "patient asyncio 7"),
        ("'told:app', backend='trio', shutdown_timeout=5", "billing trio 5"),
    ],
)
def test_one_process_is_this_one(start: Start, arguments: str, told: str) -> None:
    """One process runs right here, with the command's defaults."""
    service = start(f"import pystream; pystream.run({arguments})")

    assert service.end() == (0, [told], "")


@pytest.mark.promise("CLI-22")
def test_processes_are_run_like_the_supervising_one(start: Start) -> None:
    """They have its module path, arguments and interpreter options, and an empty standard input."""
    program = """
        import sys
        import pystream

        sys.path.append("supplies")
        pystream.run("shop:told", processes=2)
    """
    service = start(program, "one", "two", flags=["-O", "-Werror::EncodingWarning", "-Xof=ours"])
    told = service.lines("told ", 8)
    service.send(signal.SIGTERM)

    assert service.end()[0] == 0
    assert sorted(told) == sorted(["asyncio False", "['one', 'two'] '' 1", "True ours", "True"] * 2)


@pytest.mark.promise("CLI-14", "CLI-21")
def test_the_failure_has_the_facts(start: Start) -> None:
    """What is raised names the process, its id, its code and what it said."""
    service = start("""
        import pystream

        try:
            pystream.run("shop:lost", processes=2)
        except pystream.ServiceFailed as failed:
            error = failed.errors[0]
            print(failed.step, failed.culprit, failed.subscription, error.number, error.processes, error.code)
            print(error.pid > 0, error.reason)
    """)

    code, lines, err = service.end()
    assert code == 0
    assert err.endswith("LookupError: no such order; the service stops\n")  # in the log, at once
    assert lines[-2:] == ["process shop:lost None 2 2 1", "True orders failed (handler): LookupError: no such order"]


@pytest.mark.promise("CLI-21")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"processes": 0}, "run(processes=0): give a whole number, 1 or more"),
        ({"processes": 2.5}, "run(processes=2.5): give a whole number, 1 or more"),
        (
            {"shutdown_timeout": -1},
            "run(shutdown_timeout=-1): give seconds, 0 or more, or None for the app's own",
        ),
        (
            {"processes": 2, "shutdown_timeout": float("nan")},
            "run(shutdown_timeout=nan): give seconds, 0 or more, or None for the app's own",
        ),
        ({"processes": 2, "backend": "curio"}, "backend='curio' is none; give asyncio, uvloop or trio"),
        ({"processes": 2}, "'shop' is no app: give module:app, for example shop:app"),
    ],
)
def test_refusals(arguments: dict[str, Any], sentence: str) -> None:
    """What cannot work is a ConfigurationError."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(ConfigurationError) as refused:
        pystream.run("shop", **arguments)

    assert str(refused.value) == sentence
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.promise("CLI-23")
def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure of the operating system to start one is the service's failure."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ServiceFailed) as failed:
        pystream.run("shop:app", processes=2)

    assert str(failed.value) == (
        "shop:app failed (process): process 1 of 2 could not be started: No such file or directory"
    )
    assert isinstance(failed.value.errors[0], ProcessEnded)


@pytest.mark.promise("CLI-19")
def test_an_orphan_that_does_not_end_ends_itself(start: Start) -> None:
    """Where nobody is left to kill a process, it exits by itself once the bounds of its stop have passed."""
    service = start("""
        import os
        from functools import partial

        import anyio
        from pystream._processes.link import Link


        async def main() -> None:
            link = Link([], os.open(os.devnull, os.O_WRONLY), "process-1")
            async with anyio.create_task_group() as tasks:
                await tasks.start(link.watch, (0.2, 0.1), print, print)
                link.follow()
                await anyio.sleep(600)


        anyio.run(main)
    """)

    code, _, err = service.end()
    assert code == 1
    assert err.endswith("process-1: not ended 0.2 s after the supervising process; exiting\n")
