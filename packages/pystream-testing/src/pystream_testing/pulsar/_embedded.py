"""`EmbeddedPulsar`: a Pulsar server as a child process, for as long as a `with` block lasts."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from pystream_testing.pulsar._binary import find_binary
from pystream_testing.pulsar._errors import EmbeddedServerError
from pystream_testing.pulsar._handshake import answers
from pystream_testing.pulsar._watcher import Watcher

__all__ = ["EmbeddedPulsar"]

_HOST = "127.0.0.1"
_ATTEMPTS = 3
_STOP_TIMEOUT = 5.0
_OUTPUT = "output.log"


class EmbeddedPulsar:
    """`pulsar-lite`, a small server that speaks Pulsar's protocol, on a free port.

    It keeps its data in a temporary directory, which goes with it. Sound with SHARED
    subscriptions; it has no delayed delivery, no seeking by time, no patterns and not the
    order of EXCLUSIVE and FAILOVER, so use a real server for those.

        with EmbeddedPulsar() as server:
            broker = PulsarBroker(server.url)

    Args:
        start_timeout: Seconds until a server that does not answer is given up, more than 0.
    """

    def __init__(self, *, start_timeout: float = 20.0) -> None:
        self._start_timeout = start_timeout
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: Watcher | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The service URL.

        Raises:
            EmbeddedServerError: The server does not run.
        """
        if self._process is None:
            raise EmbeddedServerError("the embedded Pulsar server does not run; enter its `with` block first")

        return f"pulsar://{_HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id, or none while the server does not run."""
        return None if self._process is None else self._process.pid

    @property
    def output(self) -> str:
        """What the server has written so far, the last 4 KiB of it; empty while it does not run."""
        if self._directory is None:
            return ""

        path = Path(self._directory.name, _OUTPUT)
        return path.read_bytes()[-4096:].decode(errors="replace").strip() if path.exists() else ""

    def __enter__(self) -> Self:
        """Start the server and return once it answers.

        Raises:
            EmbeddedServerMissing: It is not installed, or not for this platform.
            EmbeddedServerError: It died or did not answer in time; the message has its output.
        """
        if self._process is not None:
            raise EmbeddedServerError("the embedded Pulsar server runs already; make a second one")

        binary = find_binary()
        self._directory = tempfile.TemporaryDirectory(prefix="pystream-pulsar-")
        try:
            self._start(binary, Path(self._directory.name))
        except BaseException:
            self._stop()
            raise

        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the server and remove its data."""
        self._stop()

    def _start(self, binary: Path, directory: Path) -> None:
        # Between finding a free port and listening on it, somebody else may take it.
        for attempt in range(_ATTEMPTS):
            self._port = _free_port()
            self._end()  # the server of the attempt before
            self._process = _spawn(binary, directory, self._port)
            self._watcher = Watcher(self._process.pid, directory)
            if self._wait_until_ready(self._process):
                return

            code = self._process.poll()
            if code is None:
                raise EmbeddedServerError(
                    f"the embedded Pulsar server did not answer within {self._start_timeout:g} s; "
                    f"it wrote: {self.output}"
                )

            if attempt == _ATTEMPTS - 1 or "Address already in use" not in self.output:
                raise EmbeddedServerError(
                    f"the embedded Pulsar server ended with code {code} while it started; it wrote: {self.output}"
                )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + self._start_timeout
        while process.poll() is None and time.monotonic() < deadline:
            if answers(_HOST, self._port, timeout=1.0):
                return True

            time.sleep(0.02)

        return False

    def _stop(self) -> None:
        self._end()
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()

    def _end(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.dismiss()

        process, self._process = self._process, None
        if process is not None:
            _terminate(process)


def _spawn(binary: Path, directory: Path, port: int) -> subprocess.Popen[bytes]:
    configuration = directory / "pulsar-lite.toml"
    configuration.write_text("[metrics]\nenabled = false\n")  # else a port that is the same for all servers
    arguments = [
        *(str(binary), "--config", str(configuration)),
        *("--addr", f"{_HOST}:{port}", "--db-path", str(directory / "data"), "--log-level", "warn"),
    ]
    with (directory / _OUTPUT).open("wb") as output:
        # A session of its own: Ctrl-C in a terminal is for the program, which still needs its server.
        return subprocess.Popen(  # noqa: S603  # the executable of an installed package, no user input
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]

    return port


def _terminate(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
