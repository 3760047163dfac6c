"""Ends the server when the program that started it dies without a goodbye, as by `kill`.

The server is in a session of its own, so nothing else would end it then.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["Watcher"]

# Reads until the program's end of the pipe is closed, by whatever death, then ends the server.
_SCRIPT = 'read -r _; kill "$1"; sleep 1; kill -9 "$1"; rm -rf -- "$2"'


class Watcher:
    """A small process that waits for the death of this one. Does nothing where there is no POSIX shell.

    Args:
        pid: The server's process id.
        directory: The server's temporary directory, removed after it.
    """

    def __init__(self, pid: int, directory: Path) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if os.name == "posix":
            self._process = subprocess.Popen(  # noqa: S603  # a script of ours; number and path are arguments
                ["/bin/sh", "-c", _SCRIPT, "watcher", str(pid), str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """End the watcher, which then does nothing; before the server is ended and its id free again."""
        process, self._process = self._process, None
        if process is None:
            return

        with process:  # closes the pipe, after the kill
            process.kill()
