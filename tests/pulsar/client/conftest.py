"""Fixtures of the client side: the scripted binding, and small servers on the loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pystream_pulsar._client import at_exit, binding

from tests.pulsar.client.loopback import LoopbackServer
from tests.pulsar.client.scripted import Binding


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Binding:
    """A scripted `_pulsar` in place of the real one."""
    stand_in = Binding()
    monkeypatch.setattr(binding, "_pulsar", stand_in)
    monkeypatch.setattr(at_exit, "_kept", set())  # a client left frozen is no affair of this process's exit
    return stand_in


@pytest.fixture
def loopback() -> Iterator[LoopbackServer]:
    """A server that answers every connection with the bytes the test gives."""
    with LoopbackServer() as server:
        yield server
