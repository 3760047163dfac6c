"""The command line with a running service over the memory broker: signals, exit codes, logging."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.core.command import pystream
from tests.core.distributions import Distributions
from tests.core.running import Service, Start

SERVICE = """
    import logging
    import os
    import signal
    import sys

    import anyio
    import sniffio
    from pystream import FAIL_FAST, FailurePolicy, PyStream, subscriber
    from pystream.memory import MemoryBroker
    from pystream.protocols import Outgoing


    @subscriber("orders")
    async def handle(order: bytes) -> None:
        if order == b"stuck":
            print("stuck", flush=True)
            await anyio.sleep(60)

        raise LookupError("no such order")


    def make():
        app = PyStream("billing", version="1.0.0", on_failure=FailurePolicy(error=FAIL_FAST))
        broker = MemoryBroker()
        app.with_broker(broker, handle)
        app.orders = broker.publisher()

        @app.after_startup
        def ready() -> None:
            print("ready", flush=True)

        @app.after_shutdown
        def stopped() -> None:
            print("stopped", flush=True)

        return app


    app = make()
    slow = make()
    twice = make()
    failing = make()
    stuck = make()
    lost = make()


    @slow.on_shutdown
    async def linger() -> None:
        await anyio.sleep(0.6)
        print("lingering", flush=True)
        await anyio.sleep(60)


    @twice.on_shutdown
    def repeat() -> None:
        os.kill(os.getpid(), signal.SIGTERM)


    @failing.on_startup
    def fail() -> None:
        raise LookupError("no ledger")


    @stuck.after_startup
    async def order_stuck() -> None:
        await stuck.orders.publish(Outgoing("orders", b"stuck", {}))


    @lost.after_startup
    async def order_lost() -> None:
        await lost.orders.publish(Outgoing("orders", b"lost", {}))


    @app.after_startup
    def tell() -> None:
        print(sniffio.current_async_library(), "uvloop" in sys.modules, flush=True)
        logging.getLogger("billing").info("books are open")
"""


LOGGED = "import logging\nlogging.basicConfig(level='INFO', format='mine %(message)s')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the service."""
    (tmp_path / "billing.py").write_text(dedent(SERVICE))
    (tmp_path / "logged.py").write_text(f"{LOGGED}from billing import app as app\n")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts services, and ends what a failed test has left running."""
    started: list[Service] = []

    def begin(*arguments: str, **changes: str) -> Service:
        started.append(Service(folder, *arguments, **changes))
        return started[-1]

    yield begin

    for service in started:
        service.close()


@pytest.mark.promise("CLI-6")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_one_signal_stops_in_order(start: Start, backend: str, signum: signal.Signals) -> None:
    """SIGTERM or SIGINT is a graceful stop with exit code 0 and nothing on standard error but logs."""
    service = start("billing:make", "--backend", backend, "--log-level", "error")
    service.until("ready")
    service.send(signum)

    assert service.end() == (0, ["stopped"], "")


@pytest.mark.promise("CLI-7")
@pytest.mark.parametrize(
    ("backend", "first", "second", "code"),
    [
        ("asyncio", signal.SIGTERM, signal.SIGTERM, 143),
        ("asyncio", signal.SIGTERM, signal.SIGINT, 130),
        ("uvloop", signal.SIGTERM, signal.SIGTERM, 143),
        ("uvloop", signal.SIGINT, signal.SIGINT, 130),
        ("trio", signal.SIGTERM, signal.SIGTERM, 143),
        ("trio", signal.SIGINT, signal.SIGINT, 130),
    ],
)
def test_second_signal_aborts(
    start: Start, backend: str, first: signal.Signals, second: signal.Signals, code: int
) -> None:
    """A second signal later than half a second ends the process at once, with 128 plus its number."""
    service = start("billing:slow", "--backend", backend, "--log-level", "critical")
    service.until("ready")
    service.send(first)
    service.until("lingering")
    service.send(second)

    ended, _, err = service.end()
    assert ended == code
    assert err == f"Error: billing was aborted by a second signal ({second.name})\n"


@pytest.mark.promise("CLI-7")
def test_repeated_signal_within_half_a_second_is_one_request(start: Start) -> None:
    """A signal delivered twice, as process groups and supervisors do, is still a graceful stop."""
    service = start("billing:twice", "--log-level", "error")
    service.until("ready")
    service.send(signal.SIGTERM)

    assert service.end() == (0, ["stopped"], "")


@pytest.mark.promise("CLI-8")
def test_failed_start_is_one_sentence_and_exit_code_1(folder: Path) -> None:
    """A service that does not start says in one sentence which step failed and why."""
    result = pystream(folder, "run", "billing:failing", "--log-level", "critical")

    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1
    assert "on_startup" in result.err
    assert "LookupError: no ledger" in result.err


@pytest.mark.promise("CLI-3")
@pytest.mark.parametrize(
    ("backend", "told"), [("asyncio", "asyncio False"), ("uvloop", "asyncio True"), ("trio", "trio False")]
)
def test_backend_chooses_the_loop(start: Start, backend: str, told: str) -> None:
    """--backend decides which loop the service runs on, and imports no other."""
    service = start("billing:app", "--backend", backend)
    service.until("ready")
    service.until(told)
    service.send(signal.SIGTERM)

    assert service.end()[:2] == (0, ["stopped"])


@pytest.mark.promise("CLI-9")
@pytest.mark.parametrize(
    ("arguments", "suffixes"),
    [
        (["billing:app"], [" INFO billing: books are open"]),
        (["billing:app", "--log-level", "Warning"], []),
        (["logged:app", "--log-level", "critical"], ["mine books are open"]),
    ],
)
def test_logging_is_configured_only_where_the_service_has_not(
    start: Start, arguments: list[str], suffixes: list[str]
) -> None:
    """--log-level sets up logging for a service without a root handler, and leaves others alone."""
    service = start(*arguments)
    service.until("ready")
    service.send(signal.SIGTERM)

    code, _, err = service.end()
    lines = [line for line in err.splitlines() if "books are open" in line]
    assert code == 0
    assert len(lines) == len(suffixes)
    assert all(line.endswith(suffix) for line, suffix in zip(lines, suffixes, strict=True))


@pytest.mark.promise("CLI-6")
def test_spent_shutdown_timeout_is_a_clean_stop(start: Start) -> None:
    """A handler that outlasts --shutdown-timeout is given up with a WARNING, and the exit code is 0."""
    service = start("billing:stuck", "--shutdown-timeout", "0.2", "--log-level", "warning")
    service.until("stuck")
    service.send(signal.SIGTERM)

    code, lines, err = service.end()
    assert code == 0
    assert "stopped" in lines
    assert " WARNING pystream." in err
    assert "Error: " not in err


@pytest.mark.promise("CLI-8")
def test_fail_fast_is_one_sentence_and_exit_code_1(folder: Path) -> None:
    """A service stopped by a failing handler names subscription and cause, after an orderly stop."""
    result = pystream(folder, "run", "billing:lost", "--log-level", "critical")

    assert result.code == 1
    assert "stopped" in result.out.splitlines()
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1
    assert "orders" in result.err
    assert "LookupError: no such order" in result.err


@pytest.mark.promise("CLI-8", "SDK-4")
def test_broken_plugin_refuses_the_start_until_it_is_blocked(folder: Path, start: Start) -> None:
    """A plugin that cannot be imported is exit code 1 and one sentence, whose advice works."""
    distributions = Distributions(folder)
    module = distributions.install(
        "dist-audit", "raise RuntimeError('no ledger')", "pystream.plugins", {"audit": "{module}"}
    )

    refused = pystream(folder, "run", "billing:make", "--log-level", "critical", PYTHONPATH=str(folder))

    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: ")
    assert refused.err.count("\n") == 1
    assert f"'audit = {module}'" in refused.err
    assert "dist-audit 1.2" in refused.err
    assert "RuntimeError: no ledger" in refused.err

    service = start("billing:make", PYTHONPATH=str(folder), PYSTREAM_BLOCK_PLUGINS="audit")
    service.until("ready")
    service.send(signal.SIGTERM)
    assert service.end()[:2] == (0, ["stopped"])
