"""The price of a callback: the client makes a Python thread state for each and destroys it again.

Taking the interpreter's lock once more than it is given back keeps the state for as long
as the interpreter lives, one per thread of the client, and more than halves the price of
a send in bulk. CPython only; `PYSTREAM_PULSAR_KEEP_THREAD_STATES=0` switches it off.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable

__all__ = ["keep_thread_state"]

SWITCH = "PYSTREAM_PULSAR_KEEP_THREAD_STATES"


class _Kept(threading.local):
    """Lives in the thread state itself, so it is false again wherever the state is a new one."""

    here = False


_kept = _Kept()


def _ensure() -> Callable[[], object] | None:
    if sys.implementation.name != "cpython" or os.environ.get(SWITCH) == "0":
        return None

    ensure: Callable[[], object] | None = getattr(ctypes.pythonapi, "PyGILState_Ensure", None)
    return ensure


_take = _ensure()


def keep_thread_state() -> None:
    """Keep the calling thread's state. Cheap where it is kept; harmless on a thread of Python's own."""
    if _kept.here or _take is None:
        return

    _kept.here = True
    _take()
