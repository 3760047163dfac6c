"""The embedded server itself: started, ended, and gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pystream_testing.pulsar import EmbeddedPulsar, EmbeddedServerError


def listens(url: str) -> bool:
    """Whether anybody accepts connections at a URL."""
    split = urlsplit(url)
    try:
        socket.create_connection((split.hostname or "", split.port or 0), timeout=1).close()
    except OSError:
        return False

    return True


@pytest.mark.promise("TESTING-1")
def test_two_servers_side_by_side() -> None:
    """Servers run side by side on ports of their own, and leave neither process nor port behind."""
    with EmbeddedPulsar() as one, EmbeddedPulsar() as other:
        pids, urls = [one.pid, other.pid], [one.url, other.url]
        assert len(set(pids)) == len(set(urls)) == 2
        assert all(listens(url) for url in urls)

    assert not any(listens(url) for url in urls)
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.promise("TESTING-1")
def test_a_server_can_be_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same object starts a fresh server again; its temporary directory goes with each."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = EmbeddedPulsar()
    for _ in range(2):
        with server:
            assert len(list(tmp_path.iterdir())) == 1
            with pytest.raises(EmbeddedServerError, match="runs already"):
                server.__enter__()

        assert list(tmp_path.iterdir()) == []
        assert server.pid is None


@pytest.mark.promise("TESTING-1")
@pytest.mark.skipif(not hasattr(os, "getsid"), reason="sessions of processes are POSIX's")
def test_a_terminal_does_not_reach_the_server() -> None:
    """The server is in a session of its own, so that Ctrl-C reaches the program alone."""
    with EmbeddedPulsar() as server:
        assert server.pid is not None
        assert os.getsid(server.pid) == server.pid


@pytest.mark.promise("TESTING-1")
@pytest.mark.skipif(os.name != "posix", reason="the watcher is a shell script")
def test_a_program_that_is_killed_leaves_no_server(tmp_path: Path) -> None:
    """When the program is killed the server ends, and its temporary directory goes too."""
    program = (
        "import sys, time; from pystream_testing.pulsar import EmbeddedPulsar; "
        "server = EmbeddedPulsar().__enter__(); print(server.url, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert listens(url)
        process.kill()

    deadline = time.monotonic() + 20
    while (listens(url) or list(tmp_path.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not listens(url)
    assert list(tmp_path.iterdir()) == []
