"""A server on the loopback that says one thing to everybody, or nothing."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from types import TracebackType
from typing import Self

# Frames as a server sends them: two lengths, the kind of the command, then its content; the largest
# message in the first is 1000 bytes.
CONNECTED = bytes.fromhex("0000001b 00000017 0803 1a13 0a0c") + b"a server 9.9" + bytes.fromhex("1013 18e807")
REFUSED = bytes.fromhex("00000018 00000014 080e 7210 0800 1003 1a0a") + b"bad token!"


class LoopbackServer:
    """Sends `answer` to each connection, then closes it, or keeps it open and silent.

    Args:
        context: How it speaks TLS, or none for a server without.

    Attributes:
        answer: What is sent once something was received; none says nothing and keeps the connection.
        received: What the last connection sent first.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.answer: bytes | None = CONNECTED
        self.received = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread out of its accept
        self._socket.close()
        self._thread.join(5)
        for connection in self._open:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return

            with contextlib.suppress(OSError):
                if self._context is not None:
                    connection = self._context.wrap_socket(connection, server_side=True)

                self._open.append(connection)
                self.received = connection.recv(4096)
                if self.answer is not None:
                    connection.sendall(self.answer)
                    connection.shutdown(socket.SHUT_WR)
