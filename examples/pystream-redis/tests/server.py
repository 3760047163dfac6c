"""A real Redis server for the tests: started on a free loopback port, ended by its process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_PATIENCE = 10.0


@dataclass
class Server:
    """A server that can be stopped and started again on its port; it keeps what it was told.

    Attributes:
        port: Where it listens.
        folder: Where it keeps its files.
        options: More words of its command line.
    """

    port: int
    folder: Path
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "always", *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        end = time.monotonic() + _PATIENCE
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"redis-server does not answer:\n{(self.folder / 'log').read_text('utf-8', 'replace')}")

            time.sleep(0.02)

    def stop(self) -> None:
        """End it at once, as a crash would."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait(_PATIENCE)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


def binary() -> str:
    """The server's program; where there is none the test is skipped, or fails where `CI` is set."""
    found = shutil.which("redis-server")
    if found is None:
        missing = (
            "redis-server is not installed: the tests of pystream-redis need one (Debian: apt-get install redis-server)"
        )
        if os.environ.get("CI"):
            pytest.fail(missing)

        pytest.skip(missing)

    return found


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Server]:
    """A server, ended at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]

    server = Server(port, folder, options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
