"""Watching what a constructor does: threads, sockets, child processes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

__all__ = ["watched"]

T = TypeVar("T")

# Audit events and calls are told in the thread that causes them, so other threads do not disturb.
_EVENTS = {
    "socket.__new__": "a socket",
    "socket.getaddrinfo": "a look-up of a host",
    "subprocess.Popen": "a process",
}
_STARTS_THREAD = frozenset({"start_new_thread", "start_joinable_thread"})

_watching: dict[int, list[str]] = {}
_installing = threading.Lock()
_installed = threading.Event()


def watched(make: Callable[[], T]) -> tuple[T, list[str]]:
    """Call `make()` in this thread, which is a new one; its value, and what it has started."""
    _install()
    seen = _watching[threading.get_ident()] = []

    def note_call(_frame: FrameType, event: str, called: Any) -> None:
        # There is no audit event for threads before Python 3.12.
        if event == "c_call" and getattr(called, "__name__", "") in _STARTS_THREAD:
            seen.append("a thread")

    sys.setprofile(note_call)
    try:
        return make(), seen
    finally:
        sys.setprofile(None)
        del _watching[threading.get_ident()]


def _install() -> None:
    # An audit hook cannot be removed, so there is one for the whole run, and only once it is needed.
    with _installing:
        if not _installed.is_set():
            _installed.set()
            sys.addaudithook(_note)


def _note(event: str, _args: tuple[object, ...]) -> None:
    if event in _EVENTS:
        seen = _watching.get(threading.get_ident())
        if seen is not None:
            seen.append(_EVENTS[event])
