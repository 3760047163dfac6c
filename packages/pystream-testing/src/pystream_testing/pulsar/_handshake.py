"""Readiness by a real connection: a listening socket is not yet a server that answers."""

from __future__ import annotations

import socket

__all__ = ["answers"]

# The command CONNECT of the Pulsar protocol: its kind (field 1 is 2), and in field 2 the client's
# version (field 1, text) and the protocol's (field 4, number). Two lengths of four bytes precede it.
_CONTENT = b"\x0a\x08pystream" + b"\x20\x13"
_COMMAND = b"\x08\x02" + b"\x12" + bytes([len(_CONTENT)]) + _CONTENT
_FRAME = (len(_COMMAND) + 4).to_bytes(4, "big") + len(_COMMAND).to_bytes(4, "big") + _COMMAND

_CONNECTED = b"\x08\x03"  # field 1, the kind, is 3


def answers(host: str, port: int, *, timeout: float) -> bool:
    """Whether a Pulsar server there accepts a connection and answers CONNECT with CONNECTED.

    Args:
        host: A name or an address.
        port: From 1 to 65535.
        timeout: Seconds for each step, more than 0.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(_FRAME)
            answer = b""
            while len(answer) < 10:
                received = connection.recv(4096)
                if not received:
                    return False

                answer += received

    except OSError:
        return False

    return answer[8:10] == _CONNECTED
