"""The command: its output, exit codes, and refusals."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from pystream import State
from pystream.memory import MemoryBroker
from pystream_testing.pulsar import EmbeddedPulsar, EmbeddedServerMissing
from rich.console import Console

from examples.orders.books import Books
from examples.orders.demo import main
from examples.orders.plan import Plan
from examples.orders.run import Run
from examples.orders.screen import show_progress
from examples.orders.service import Confirmation, Movement, Order
from tests.demo.faulty import service

_ROOT = Path(__file__).parent.parent.parent
_KEYS = [
    "server",
    "published",
    "handled",
    "replied",
    "retried",
    "dropped",
    "lost",
    "order_violations",
    "rate",
    "p50_ms",
    "p99_ms",
]
_MEMORY = ["--url", "memory://", "--messages", "200"]


async def confirm_all_but_one(order: Order, books: State[Books]) -> Confirmation | None:
    if order.id == 60:
        return None

    books.order_confirmed(order.id, None)
    return Confirmation(order_id=order.id)


async def move_backwards(movement: Movement, books: State[Books]) -> None:
    books.stock_moved(movement.id, movement.sku, 1000 - movement.number)


@pytest.mark.promise("DEMO-8")
def test_the_last_line_of_stdout_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, stdout is one line with exactly the promised keys, and the table goes to stderr."""
    assert main([*_MEMORY, "--json"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    figures = json.loads(said.out)
    assert list(figures) == _KEYS
    assert figures["server"] == "memory://"
    assert (figures["published"], figures["handled"], figures["dropped"], figures["lost"]) == (200, 197, 3, 0)
    assert "order violations" in said.err


@pytest.mark.promise("DEMO-8")
def test_the_table_names_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json, stdout ends with a table of all figures and a verdict."""
    assert main(_MEMORY) == 0
    said = capsys.readouterr().out
    for figure in (
        "published",
        "handled",
        "replied",
        "retried",
        "dropped",
        "lost",
        "order violations",
        "rate",
        "p50",
        "p99",
    ):
        assert figure in said

    assert "Nothing was lost" in said


@pytest.mark.promise("DEMO-9")
def test_a_lost_message_makes_the_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that has lost a message says so, and its exit code is 1."""
    assert main([*_MEMORY, "--json"], make_app=service(confirm=confirm_all_but_one), patience=0.3) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["lost"] == 1
    assert "1 lost, 0 out of order" in said.err


@pytest.mark.promise("DEMO-9")
def test_a_violated_order_makes_the_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    """A run with movements out of order says so, and its exit code is 1."""
    assert main([*_MEMORY, "--json"], make_app=service(move_stock=move_backwards)) == 1
    assert json.loads(capsys.readouterr().out)["order_violations"] > 0


@pytest.mark.promise("DEMO-10")
def test_the_service_logs_to_a_file(capsys: pytest.CaptureFixture[str], logs: Path) -> None:
    """The errors about unreadable orders are in the file that is named at the end, and not on the screen."""
    assert main(_MEMORY) == 0
    (log,) = logs.glob("orders-demo-*.log")
    assert "unreadable delivery" in log.read_text()
    said = capsys.readouterr()
    assert str(log) in said.out
    assert "unreadable delivery" not in said.out + said.err


@pytest.mark.promise("DEMO-10")
def test_an_empty_log_is_removed(capsys: pytest.CaptureFixture[str], logs: Path) -> None:
    """A run in which nothing was logged leaves and names no file."""
    assert main(["--url", "memory://", "--messages", "10"]) == 0
    assert not list(logs.iterdir())
    assert "log" not in capsys.readouterr().out


@pytest.mark.promise("DEMO-11")
@pytest.mark.parametrize("url", ["", "nonsense", "kafka://localhost", "memory://a/b", "pulsar://"])
def test_a_url_that_is_none_is_refused_in_a_sentence(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A URL that no broker knows is one line on stderr and the exit code 2."""
    assert main(["--url", url]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("demo: ")


@pytest.mark.promise("DEMO-11")
@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5", "²"])
def test_a_number_of_messages_that_is_none_is_refused(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A count below 1, or none at all, is a usage error that names it."""
    with pytest.raises(SystemExit) as ended:
        main(["--messages", count])

    assert ended.value.code == 2
    assert repr(count) in capsys.readouterr().err


@pytest.mark.promise("DEMO-11")
def test_without_rich_the_demo_says_what_to_install() -> None:
    """Where rich is missing, the demo names the extra that brings it."""
    code = "import sys, runpy; sys.modules['rich.console'] = None; runpy.run_module('examples.orders.demo')"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.strip() == 'demo: it needs rich; pip install "pystream[cli]"'


@pytest.mark.promise("DEMO-12")
def test_without_an_embedded_server_the_memory_broker_stands_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a platform without the embedded server the demo says so and runs on the memory broker."""

    def missing(server: EmbeddedPulsar) -> None:
        raise EmbeddedServerMissing("there is none here")

    monkeypatch.setattr(EmbeddedPulsar, "__enter__", missing)
    assert main(["--messages", "20", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["server"] == "memory://"
    assert "there is none here. The memory broker stands in." in " ".join(said.err.split())


@pytest.mark.promise("DEMO-12")
def test_without_pystream_testing_the_memory_broker_stands_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where pystream-testing is not installed the demo says so and runs on the memory broker."""
    monkeypatch.setitem(sys.modules, "pystream_testing.pulsar", None)
    assert main(["--messages", "20", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["server"] == "memory://"
    assert "pystream-testing[pulsar]" in said.err


@pytest.mark.promise("DEMO-5")
def test_a_second_signal_aborts(capsys: pytest.CaptureFixture[str]) -> None:
    """A second Ctrl-C ends a run that does not come to its end, with the exit code 130 and without figures."""

    async def interrupt(confirmation: Confirmation) -> None:
        while True:
            signal.raise_signal(signal.SIGINT)
            await anyio.sleep(0.01)

    assert main([*_MEMORY, "--json"], make_app=service(receive=interrupt)) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert "aborted" in said.err


class Screen(io.StringIO):
    """A screen that tells when a text has appeared on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.appeared = anyio.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._text in self.getvalue():
            self.appeared.set()

        return written


@pytest.mark.anyio
@pytest.mark.promise("DEMO-13")
@pytest.mark.parametrize("terminal", [True, False])
async def test_progress_is_shown_while_the_run_goes_on(terminal: bool) -> None:
    """Progress tells published, handled, replied, retried and dropped: as bars on a terminal, else as lines."""
    screen = Screen("dropped 3")
    console = Console(file=screen, force_terminal=terminal, force_interactive=terminal, width=120)
    run = Run(broker=MemoryBroker(), plan=Plan(200))
    with anyio.fail_after(30):
        await run.go()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(show_progress, run, console)
            await screen.appeared.wait()
            tasks.cancel_scope.cancel()

    shown = screen.getvalue()
    assert all(word in shown for word in ("published", "handled", "replied", "retried 7"))
    assert ("\x1b" in shown) is terminal
