"""The demo as a user runs it: a process of its own, on the embedded server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from live.choice import LiveServer

_ROOT = Path(__file__).parent.parent
_LIMIT = 50  # seconds

pytestmark = pytest.mark.timeout(120)


@contextmanager
def demo(*arguments: str, logs: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo's process; ended at the end of the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.orders.demo", *arguments],
        cwd=_ROOT,
        env={**os.environ, "TMPDIR": str(logs)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def figures(stdout: str) -> dict[str, Any]:
    """What the last line of stdout says."""
    found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return found


def wait_for_progress(process: subprocess.Popen[str]) -> None:
    """Return when the process has published something and said so."""
    assert process.stderr is not None
    while not process.stderr.readline().startswith("published"):
        assert process.poll() is None


@pytest.mark.promise("DEMO-14")
def test_a_run_on_the_embedded_server_is_good(tmp_path: Path) -> None:
    """Without a URL the demo starts a Pulsar server of its own, and loses nothing on it."""
    with demo("--messages", "2000", "--json", logs=tmp_path) as process:
        stdout, stderr = process.communicate(timeout=_LIMIT)

    assert process.returncode == 0, stderr
    found = figures(stdout)
    assert found["server"].startswith("pulsar://127.0.0.1:")
    # 1,800 in bulk, 450 of them movements; of the 1,350 orders 27 are unreadable and 67 retried; 200 are timed.
    assert (found["published"], found["handled"], found["replied"]) == (2000, 1973, 1523)
    assert (found["dropped"], found["lost"], found["order_violations"]) == (27, 0, 0)
    assert found["retried"] >= 67
    assert 0 < found["p50_ms"] <= found["p99_ms"]


@pytest.mark.promise("DEMO-5")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_what_is_published(signum: int, pulsar_server: LiveServer, tmp_path: Path) -> None:
    """After Ctrl-C the demo publishes nothing more, handles what is published, prints the table and ends with 0."""
    with demo("--url", pulsar_server.url, "--messages", "200000", "--json", logs=tmp_path) as process:
        wait_for_progress(process)
        process.send_signal(signum)
        stdout, stderr = process.communicate(timeout=_LIMIT)

    assert process.returncode == 0, stderr
    found = figures(stdout)
    assert 0 < found["published"] < 200_000
    assert found["handled"] + found["dropped"] == found["published"]
    assert (found["lost"], found["order_violations"]) == (0, 0)
    assert "order violations" in stderr


@pytest.mark.promise("DEMO-11")
def test_no_server_is_a_sentence(tmp_path: Path) -> None:
    """A URL where no server listens is one line on stderr, and the exit code 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with demo("--url", f"pulsar://127.0.0.1:{taken.getsockname()[1]}", logs=tmp_path) as process:
            stdout, stderr = process.communicate(timeout=_LIMIT)

    assert process.returncode == 1
    assert stdout == ""
    assert len(stderr.splitlines()) == 1
    assert stderr.startswith("demo: pulsar://127.0.0.1:")
