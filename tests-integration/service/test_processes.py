"""Starts and stops in processes of their own: the native client must not spoil the exit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from live.choice import LiveServer

STARTS = 100
AT_ONCE = 3
SERVICE = Path(__file__).with_name("consume_one.py")


@pytest.mark.timeout(240)
@pytest.mark.promise("PULSAR-110")
def test_a_hundred_starts_and_stops(pulsar_server: LiveServer, unique: Callable[[str], str]) -> None:
    """A service that starts, handles a message and stops ends with exit code 0, a hundred times."""

    def once(number: int) -> tuple[int, str]:
        loop = ("asyncio", "uvloop", "trio")[number % 3]
        command = [sys.executable, str(SERVICE), pulsar_server.url, unique("process"), loop]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return ended.returncode, ended.stderr[-2000:]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(once, range(STARTS)))

    assert [result for result in results if result[0] != 0] == []
