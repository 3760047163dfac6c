"""Thread states are kept once per thread, and only where that is possible and wanted."""

from __future__ import annotations

import sys
import threading

import pytest
from pystream_pulsar._client import thread_states


@pytest.mark.promise("PULSAR-59")
def test_once_per_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is taken once more on each thread, however often a callback comes there."""
    taken: list[str] = []
    monkeypatch.setattr(thread_states, "_take", lambda: taken.append(threading.current_thread().name))

    def callbacks() -> None:
        for _ in range(3):
            thread_states.keep_thread_state()

    threads = [threading.Thread(target=callbacks, name=name) for name in ("a", "b")]
    for thread in threads:
        thread.start()
        thread.join(5)

    assert taken == ["a", "b"]


@pytest.mark.promise("PULSAR-59")
def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment switches it off, and interpreters other than CPython never have it."""
    assert thread_states._ensure() is not None
    monkeypatch.setenv(thread_states.SWITCH, "0")
    assert thread_states._ensure() is None
    monkeypatch.delenv(thread_states.SWITCH)
    monkeypatch.setattr(sys.implementation, "name", "another")
    assert thread_states._ensure() is None


@pytest.mark.promise("PULSAR-59")
def test_off_means_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched off, a callback goes on without it."""
    monkeypatch.setattr(thread_states, "_take", None)
    thread_states.keep_thread_state()
