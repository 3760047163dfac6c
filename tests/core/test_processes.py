"""A service in several processes: signals, ends, what is told of them; real processes and real signals."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.command import pystream
from tests.core.running import Service, Start
from tests.core.several import culprit, write_several

QUIET = ["--log-level", "critical"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the services."""
    write_several(tmp_path)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts services, and ends what a failed test has left running."""
    started: list[Service] = []

    def begin(target: str, processes: int, *arguments: str) -> Service:
        started.append(Service(folder, target, "--processes", str(processes), *arguments))
        return started[-1]

    yield begin

    for service in started:
        service.close()


def pids(lines: list[str]) -> dict[str, int]:
    """The name to the id of each process, from lines that end with both."""
    return {name: int(pid) for name, pid in (line.split()[-2:] for line in lines)}


@pytest.mark.promise("CLI-10", "CLI-11")
@pytest.mark.parametrize(
    ("backend", "signum"), [("asyncio", signal.SIGTERM), ("uvloop", signal.SIGINT), ("trio", signal.SIGTERM)]
)
def test_a_signal_is_passed_on(start: Start, backend: str, signum: signal.Signals) -> None:
    """Each process is a whole service of its own; a signal to the supervising one stops them all, with exit code 0."""
    service = start("shop:app", 3, "--backend", backend, *QUIET)
    ready = service.lines("ready ", 3)
    service.send(signum)

    code, lines, err = service.end()
    assert (code, err) == (0, "")
    assert sorted(pids(ready)) == ["process-1", "process-2", "process-3"]
    assert len({service.process.pid, *pids(ready).values()}) == 4
    assert sorted(lines) == sorted(f"stopped {line}" for line in ready)


@pytest.mark.promise("CLI-10")
@pytest.mark.parametrize(
    ("backend", "told"), [("asyncio", "asyncio False"), ("uvloop", "asyncio True"), ("trio", "trio False")]
)
def test_backend_of_each_process(start: Start, backend: str, told: str) -> None:
    """--backend decides which loop each process runs on."""
    service = start("shop:told", 2, "--backend", backend, *QUIET)

    assert service.lines("told ", 8).count(told) == 2


@pytest.mark.promise("CLI-12")
@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_a_signal_to_the_group_is_one_request_however_late_it_is_passed_on(
    start: Start, folder: Path, backend: str
) -> None:
    """A delivery in hand ends and settles once, though its process is told by the signal and, later, once more."""
    service = start("shop:busy", 2, "--backend", backend)
    service.lines("ready ", 2)
    began = service.lines("begun ", 2)
    service.send(signal.SIGSTOP)
    service.send_group(signal.SIGTERM)
    service.send_group(signal.SIGTERM)
    service.lines("stopping ", 2)
    time.sleep(0.6)  # from here on a second signal would be another request
    service.send(signal.SIGCONT)
    service.logged("stopping (2 of 2 processes)")
    time.sleep(0.1)  # what was passed on has arrived
    (folder / "go").touch()

    code, lines, _ = service.end()
    assert code == 0
    assert sorted(lines) == sorted(f"{step} {line}" for step in ("done", "settled ack", "stopped") for line in began)


@pytest.mark.promise("CLI-13")
@pytest.mark.parametrize(
    ("backend", "first", "second", "group", "code"),
    [
        ("asyncio", signal.SIGTERM, signal.SIGTERM, False, 143),
        ("asyncio", signal.SIGINT, signal.SIGINT, True, 130),
        ("uvloop", signal.SIGTERM, signal.SIGINT, False, 130),
        ("trio", signal.SIGTERM, signal.SIGTERM, True, 143),
    ],
)
def test_a_second_signal_aborts_every_process(
    start: Start, backend: str, first: signal.Signals, second: signal.Signals, group: bool, code: int
) -> None:
    """Half a second after the first one, a signal cuts every stop short: what is in hand goes back unsettled."""
    service = start("shop:stuck", 2, "--backend", backend, *QUIET)
    send = service.send_group if group else service.send
    service.lines("ready ", 2)
    service.lines("begun ", 2)
    send(first)
    service.lines("stopping ", 2)
    time.sleep(0.6)
    send(second)

    ended, lines, err = service.end()
    assert ended == code
    assert err == f"Error: shop:stuck was aborted by a second signal ({second.name})\n"
    assert [line.split()[0] for line in lines] == ["stopped", "stopped"]


@pytest.mark.promise("CLI-14")
def test_a_killed_process_stops_the_service(start: Start) -> None:
    """When one of three is killed the others end in order, and the exit code is 1, with one sentence that says it."""
    service = start("shop:app", 3, *QUIET)
    running = pids(service.lines("ready ", 3))
    os.kill(running["process-2"], signal.SIGKILL)

    code, lines, err = service.end()
    assert code == 1
    assert culprit(err, "shop:app", 3) == (2, running["process-2"], "was killed by SIGKILL")
    assert pids(lines).keys() == {"process-1", "process-3"}


@pytest.mark.promise("CLI-14")
def test_a_killed_process_does_not_cut_others_short(start: Start, folder: Path) -> None:
    """What the others have in hand when one is killed ends and is settled; a signal meanwhile changes nothing."""
    service = start("shop:busy", 2, *QUIET)
    service.lines("ready ", 2)
    running = pids(service.lines("begun ", 2))
    os.kill(running["process-1"], signal.SIGKILL)
    service.lines("stopping ", 1)
    service.send(signal.SIGTERM)
    (folder / "go").touch()

    code, lines, err = service.end()
    assert code == 1
    assert culprit(err, "shop:busy", 2) == (1, running["process-1"], "was killed by SIGKILL")
    assert [line.rsplit(" ", 2)[0] for line in lines] == ["done", "settled ack", "stopped"]


@pytest.mark.promise("CLI-15")
@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        ("shop:failing", 1, r"shop.fail failed (on_startup): LookupError: no ledger"),
        ("shop:lost", 1, r"orders failed (handler): LookupError: no such order"),
        ("shop:leaving", 7, ""),
    ],
)
def test_a_failing_process_stops_the_service(folder: Path, target: str, code: int, reason: str) -> None:
    """A start that fails in every process, and a fail-fast or an exit in one, are exit code 1 and one sentence."""
    result = pystream(folder, "run", target, "--processes", "3", *QUIET)

    assert result.code == 1
    number, _, how = culprit(result.err, target, 3)
    assert how == f"ended with exit code {code}" + (f": {reason}" if reason else "")
    assert number == 2 or target == "shop:failing"
    begun = [line for line in result.out.splitlines() if line.startswith("ready")]
    stopped = [line for line in result.out.splitlines() if line.startswith("stopped")]
    assert {line.split()[1] for line in begun} - {"process-2"} <= {line.split()[1] for line in stopped}


@pytest.mark.promise("CLI-15")
def test_a_process_that_dies_while_it_imports(folder: Path) -> None:
    """A process that is killed at every start, before it could say why, is named with its signal."""
    result = pystream(folder, "run", "killed:app", "--processes", "3", *QUIET)

    assert (result.code, result.out) == (1, "")
    assert culprit(result.err, "killed:app", 3)[0::2] == (1, "was killed by SIGKILL")


@pytest.mark.promise("CLI-16")
def test_a_process_that_ends_by_itself_stops_the_service(start: Start) -> None:
    """One process that somebody stops is missed: the others are stopped, and the exit code is 1."""
    service = start("shop:app", 2, *QUIET)
    running = pids(service.lines("ready ", 2))
    os.kill(running["process-2"], signal.SIGTERM)

    code, lines, err = service.end()
    assert code == 1
    assert culprit(err, "shop:app", 2) == (2, running["process-2"], "ended with exit code 0")
    assert pids(lines).keys() == {"process-1", "process-2"}


@pytest.mark.promise("CLI-16")
def test_processes_that_a_signal_reaches_first_have_not_failed(start: Start) -> None:
    """A supervisor's signal may end processes before the supervising one gets it; the stop is clean all the same."""
    service = start("shop:app", 2, *QUIET)
    running = pids(service.lines("ready ", 2))
    service.send(signal.SIGSTOP)
    for pid in running.values():
        os.kill(pid, signal.SIGTERM)

    service.lines("stopped ", 2)
    service.send(signal.SIGTERM)
    service.send(signal.SIGCONT)

    assert service.end() == (0, [], "")


@pytest.mark.promise("CLI-12")
@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_a_signal_to_a_process_that_is_done_changes_nothing(start: Start, folder: Path, backend: str) -> None:
    """A supervisor signals one process after the other; one that has ended its service by then is not killed by it."""
    service = start("shop:lingering", 2, "--backend", backend, *QUIET)
    service.lines("ready ", 2)
    service.send(signal.SIGTERM)
    for pid in pids(service.lines("lingering ", 2)).values():
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)

    (folder / "go").touch()
    code, lines, err = service.end()
    assert (code, len(lines), err) == (0, 2, "")


@pytest.mark.promise("CLI-11")
@pytest.mark.parametrize("group", [False, True], ids=["supervisor", "group"])
def test_a_signal_while_the_service_is_imported(start: Start, group: bool) -> None:
    """A stop that comes before anything has begun ends the processes at once, and cleanly."""
    service = start("importing:app", 2, *QUIET)
    (pid,) = service.lines("importing ", 1)
    (service.send_group if group else service.send)(signal.SIGTERM)

    assert pid.isdecimal()
    assert service.end() == (0, [], "")


@pytest.mark.promise("CLI-18")
@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_a_killed_supervising_process_leaves_none_behind(start: Start, folder: Path, backend: str) -> None:
    """The others notice that it is gone, say so, finish what they have in hand and end."""
    service = start("shop:busy", 2, "--backend", backend, "--log-level", "warning")
    service.lines("ready ", 2)
    service.lines("begun ", 2)
    service.send(signal.SIGKILL)
    service.lines("stopping ", 2)
    (folder / "go").touch()

    _, lines, err = service.end()
    steps = sorted(line.rsplit(" ", 2)[0] for line in lines)
    assert steps == ["done", "done", "settled ack", "settled ack", "stopped", "stopped"]
    assert err.count("the supervising process is gone; stopping") == 2


@pytest.mark.promise("CLI-18")
def test_a_process_is_not_left_behind_while_it_imports(start: Start) -> None:
    """A process whose supervising one is killed while it imports ends too."""
    service = start("importing:app", 2, *QUIET)
    service.lines("importing ", 1)
    service.send(signal.SIGKILL)

    assert service.end()[1] == []


@pytest.mark.promise("CLI-19")
def test_a_process_that_does_not_end_is_killed(start: Start) -> None:
    """When the bounds of a stop have passed, what still runs is killed: a WARNING, and exit code 1."""
    service = start("shop:hanging", 2, "--shutdown-timeout", "0", "--log-level", "warning")
    running = pids(service.lines("ready ", 2))
    time.sleep(0.6)  # the second one hangs by now, its loop blocked
    service.send(signal.SIGTERM)

    code, _, err = service.end()
    pid, late = running["process-2"], "it had not ended 5.2 s after the stop"
    assert code == 1
    assert f" WARNING [supervisor] pystream.processes: shop:hanging: process-2 (pid {pid}) is killed: {late}\n" in err
    last = err.splitlines(keepends=True)[-1]
    assert culprit(last, "shop:hanging", 2) == (2, pid, f"was killed by SIGKILL: {late}")


@pytest.mark.promise("CLI-19")
def test_a_process_that_ignores_the_stop_while_it_imports_is_killed(start: Start) -> None:
    """Before it serves a process gets five seconds to end."""
    service = start("deaf:app", 2, *QUIET)
    service.until("deaf")
    service.send(signal.SIGTERM)

    code, _, err = service.end()
    assert code == 1
    assert culprit(err, "deaf:app", 2)[0::2] == (1, "was killed by SIGKILL: it had not ended 5 s after the stop")


@pytest.mark.promise("CLI-20")
def test_lines_of_the_log_name_their_process(start: Start) -> None:
    """The log lines of each process, and of the supervising one, say whose they are."""
    service = start("shop:told", 2)
    ready = pids(service.lines("ready ", 2))
    service.lines("told ", 8)
    service.send(signal.SIGTERM)

    code, _, err = service.end()
    assert code == 0
    for name, pid in ready.items():
        assert f" INFO [{name}] shop: books are open\n" in err
        assert f" INFO [supervisor] pystream.processes: shop:told: {name} of 2 is pid {pid}\n" in err


@pytest.mark.promise("CLI-20")
def test_logging_of_the_service_is_left_alone(start: Start) -> None:
    """A service that sets up logging keeps it, and %(processName)s tells the processes apart."""
    service = start("logged:told", 2, *QUIET)
    service.lines("told ", 8)
    service.send(signal.SIGTERM)

    code, _, err = service.end()
    lines = [line for line in err.splitlines() if "books are open" in line]
    assert code == 0
    assert sorted(lines) == ["mine process-1 books are open", "mine process-2 books are open"]
