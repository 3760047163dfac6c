"""The memory broker passes the conformance suite."""

from __future__ import annotations

import pytest
from pystream.memory import MemoryBroker
from pystream_testing.conformance import ConformanceSuite, Subject


class _MemorySubject(Subject):
    def broker(self) -> MemoryBroker:
        return MemoryBroker("conformance")


@pytest.mark.promise("SDK-100")
class TestMemory(ConformanceSuite):
    @pytest.fixture
    def subject(self) -> Subject:
        """The memory broker, which declares every capability."""
        return _MemorySubject()
