"""A pipe on which a process reports to the one that started it.

Its writing end is inherited by that one process only, and not by those that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

__all__ = ["inherited", "inheriting", "open_inherited"]


def inheriting(fd: int) -> dict[str, Any]:
    """The arguments of `Popen` with which the new process inherits this file descriptor too."""
    if sys.platform == "win32":
        import msvcrt

        handle = msvcrt.get_osfhandle(fd)
        os.set_handle_inheritable(handle, True)
        # Ctrl-C would reach each process by itself, and there it ends nothing in order.
        return {
            "startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]}),
            "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP,
        }

    return {"pass_fds": (fd,)}


def inherited(fd: int) -> int:
    """What the new process has to know of a file descriptor that it inherits."""
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.get_osfhandle(fd)

    return fd


def open_inherited(number: int) -> int:
    """The file descriptor that `inherited` has told of, in the new process; its own children do not inherit it."""
    if sys.platform == "win32":
        import msvcrt

        os.set_handle_inheritable(number, False)
        return msvcrt.open_osfhandle(number, os.O_WRONLY)

    os.set_inheritable(number, False)
    return number
