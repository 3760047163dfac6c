"""`RealPulsar`: Apache Pulsar standalone as a child process, which can be killed and started again."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from live.admin import Admin
from live.configuration import HOST, text
from live.credentials import Credentials
from live.jars import fetch_jars
from pystream_testing.pulsar._watcher import Watcher

__all__ = ["RealPulsar", "ServerFailed"]

_START_TIMEOUT = 120.0
_STOP_TIMEOUT = 30.0
_ATTEMPTS = 3
_OUTPUT = "output.log"
_OPENED = [
    *(f"java.base/{name}" for name in ("java.lang", "java.nio", "jdk.internal.misc", "java.io", "java.util.zip")),
    *("java.base/sun.net", "java.base/jdk.internal.platform"),
    *("java.management/sun.management", "jdk.management/com.sun.management.internal"),
]


class ServerFailed(Exception):
    """The server ended or did not get ready; the message has the end of its output."""


class RealPulsar:
    """One server with its data in a temporary directory, on free ports that it keeps when it is started again.

    Args:
        credentials: What it asks of clients, by token, and its certificate; none for an open server.

    Attributes:
        start_seconds: How long the latest start took.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = credentials
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: Watcher | None = None
        self._port = self._web_port = self._tls_port = 0
        self.start_seconds = 0.0

    @property
    def url(self) -> str:
        """The service URL."""
        return f"pulsar://{HOST}:{self._port}"

    @property
    def tls_port(self) -> int:
        """The port of the secured server's TLS."""
        return self._tls_port

    @property
    def tls_url(self) -> str:
        """The service URL with TLS."""
        return f"pulsar+ssl://{HOST}:{self._tls_port}"

    @property
    def admin_port(self) -> int:
        """The port of the admin interface, which speaks HTTP."""
        return self._web_port

    @property
    def admin(self) -> Admin:
        """The admin interface, as superuser."""
        credentials = self._credentials
        return Admin(f"http://{HOST}:{self._web_port}", token=None if credentials is None else credentials.token())

    @property
    def output(self) -> str:
        """The last 4 KiB of what the server has written."""
        path = self._home / _OUTPUT
        return path.read_bytes()[-4096:].decode(errors="replace").strip() if path.exists() else ""

    def __enter__(self) -> Self:
        """Start it on fresh data, and return once it is ready."""
        self._directory = tempfile.TemporaryDirectory(prefix="pystream-real-pulsar-")
        try:
            self._start_on_free_ports()
        except BaseException:
            self._end()
            raise

        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it and remove its data."""
        self._end()

    def kill(self) -> None:
        """Kill it as a power cut would; return when its process is gone."""
        process = self._let_go()
        if process is not None:
            process.kill()
            process.wait(_STOP_TIMEOUT)

    def stop(self) -> None:
        """End it in order; return when its process is gone, which takes seconds."""
        process = self._let_go()
        if process is None:
            return

        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT)

    def start(self) -> None:
        """Start it on the data and ports it had, and return once it is ready.

        Raises:
            ServerFailed: It ended or did not get ready.
        """
        began = time.monotonic()
        self._process = self._spawn()
        self._watcher = Watcher(self._process.pid, self._home)
        self._wait_until_ready(self._process, began + _START_TIMEOUT)
        self.start_seconds = time.monotonic() - began

    @property
    def _home(self) -> Path:
        if self._directory is None:
            raise ServerFailed("the server has no data yet: enter its `with` block first")

        return Path(self._directory.name)

    def _start_on_free_ports(self) -> None:
        # Between finding a free port and listening on it, somebody else may take it.
        for attempt in range(_ATTEMPTS):
            self._port, self._web_port, self._tls_port = _free_ports(3)
            self._configure()
            try:
                self.start()
            except ServerFailed:
                if attempt == _ATTEMPTS - 1 or "Address already in use" not in self.output:
                    raise

                self.stop()
            else:
                return

    def _configure(self) -> None:
        options = {} if self._credentials is None else self._credentials.options(self._tls_port)
        (self._home / "standalone.conf").write_text(text((self._port, self._web_port), options))

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self._home / _OUTPUT).open("ab") as output:
            # A session of its own: Ctrl-C in a terminal is for pytest, which ends the server itself.
            return subprocess.Popen(
                _command(fetch_jars(os.environ)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._home,
                start_new_session=True,
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        admin = self.admin
        while time.monotonic() < deadline:
            code = process.poll()
            if code is not None:
                raise ServerFailed(f"Pulsar ended with code {code} while it started; it wrote: {self.output}")

            if admin.ready():
                return

            time.sleep(0.1)

        raise ServerFailed(f"Pulsar was not ready within {_START_TIMEOUT:g} s; it wrote: {self.output}")

    def _let_go(self) -> subprocess.Popen[bytes] | None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.dismiss()

        process, self._process = self._process, None
        return process

    def _end(self) -> None:
        self.stop()
        directory, self._directory = self._directory, None
        if directory is not None:
            directory.cleanup()


def _command(jars: Path) -> list[str]:
    opened = [part for name in _OPENED for part in ("--add-opens", f"{name}=ALL-UNNAMED")]
    logging = Path(__file__).with_name("log4j2.xml")
    return [
        *("java", "-Xms512m", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", *opened),
        *("-Dio.netty.tryReflectionSetAccessible=true", f"-Dlog4j2.configurationFile={logging}"),
        *("-cp", f"{jars}/*", "org.apache.pulsar.PulsarStandaloneStarter", "--config", "standalone.conf"),
        *("--no-functions-worker", "--no-stream-storage", "--advertised-address", HOST),
    ]


def _free_ports(count: int) -> Sequence[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()

    return ports
