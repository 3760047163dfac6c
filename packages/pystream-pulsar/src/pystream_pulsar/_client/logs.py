"""Trap 9: a Python logger is asked about every DEBUG line and aborts at exit, so none is given.

The client writes its log to a file of its own choosing; ours is a pipe, whose other end
a thread reads and hands to the logger `pystream_pulsar.client`. Lines below the level
never leave the client. The client library keeps the first log it is given, for the whole
process, and so does this module. Where a pipe has no name in the file system, the log
stays off.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import threading

__all__ = ["LOGGER_NAME", "handle_line", "least_level", "log_file"]

LOGGER_NAME = "pystream_pulsar.client"

_CHUNK = 64 * 1024

_log = logging.getLogger(LOGGER_NAME)
_LINE = re.compile(r"^\S+ \S+ (?P<level>[A-Z]+) +\[\d+\] (?P<text>.*)$")
# What the client finds worth an INFO (each look-up, each connection) is detail to a service.
_LEVELS = {"INFO": logging.DEBUG, "WARN": logging.WARNING, "ERROR": logging.ERROR}


@functools.cache
def log_file() -> tuple[str, str]:
    """The least level and the path for the client's own log; the same at every call in a process."""
    if not os.path.isdir("/dev/fd"):
        return "Error", os.devnull

    reader, writer = os.pipe()
    threading.Thread(target=_forward, args=(reader,), name="pystream-pulsar-log", daemon=True).start()
    return least_level(), f"/dev/fd/{writer}"


def least_level() -> str:
    """Warnings and errors; the client's INFO lines too if the logger is enabled for DEBUG now.

    Its DEBUG lines never: there are several for each message.
    """
    return "Info" if _log.isEnabledFor(logging.DEBUG) else "Warn"


def handle_line(line: str) -> None:
    """Log one line of the client: its level and what follows its time and thread."""
    match = _LINE.match(line)
    if match is None:
        _log.warning("%s", line)
    else:
        _log.log(_LEVELS.get(match["level"], logging.WARNING), "%s", match["text"])


def _forward(reader: int) -> None:
    # For the life of the process: our own end for writing is never closed, so the client can
    # neither find the pipe broken nor wait for a reader that has gone.
    rest = b""
    while chunk := os.read(reader, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            # A handler that fails must not leave the client facing a full pipe.
            with contextlib.suppress(Exception):
                handle_line(line.decode(errors="replace"))
