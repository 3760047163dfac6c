"""Exact figures beside the noisy ones: instructions and memory blocks per delivery."""

from __future__ import annotations

import gc
import itertools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

from pystream import PyStream, mount

from benchmarks.payload import Order
from benchmarks.stand_ins import ReadyBroker, ReadyDelivery, ReadySource

ROOT = Path(__file__).parent.parent
HANDLED = 1000
LIMIT = 0.02
"""How much more a change may cost than what it is compared with, as a share."""

_SECONDS = 600.0  # a run takes half a minute on an idle machine
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)


class CountingError(Exception):
    """Instructions could not be counted; says why."""


def can_count() -> bool:
    """Whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def instructions(kinds: tuple[str, ...], root: Path = ROOT) -> tuple[float, ...]:
    """Instructions per delivery of each kind (`floor`, `service`), with the packages under `root`.

    Raises:
        CountingError: A run failed, or ran over other packages.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        runs = [
            (pool.submit(_total, kind, HANDLED, root), pool.submit(_total, kind, 2 * HANDLED, root)) for kind in kinds
        ]

    return tuple((more.result() - less.result()) / HANDLED for less, more in runs)


def _total(kind: str, handled: int, root: Path) -> int:
    sources = [str(path) for path in sorted(root.glob("packages/*/src"))]
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder, "counts")
        child = ["benchmarks.counted", kind, str(handled), str(2 * HANDLED)]
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}"]
        result = subprocess.run(
            [*valgrind, sys.executable, "-m", *child],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sources)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if result.returncode:
            raise CountingError(f"counting failed over {root}:\n{result.stderr[-2000:]}")

        if not Path(result.stdout.strip()).is_relative_to(root):
            raise CountingError(f"counted {result.stdout.strip()}, which is not under {root}")

        found = _TOTALS.search(counts.read_text())

    if found is None:
        raise CountingError("callgrind has written no totals")

    return int(found[1])


def compare(revision: str) -> dict[str, Any]:
    """Instructions of `consume.default` here and in another revision of the packages.

    The other one is unpacked into a temporary folder, and counted with this very benchmark.

    Raises:
        CountingError: There is no such revision, or it cannot be counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder).resolve()
        commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}").decode().strip()
        with tarfile.open(fileobj=BytesIO(_git("archive", commit, "packages"))) as archive:
            archive.extractall(other, filter="data")

        (before,) = instructions(("service",), other)

    (now,) = instructions(("service",))
    change = now / before - 1
    return {
        "revision": revision,
        "commit": commit,
        "instructions": [before, now],
        "change": change,
        "limit": LIMIT,
        "passed": change <= LIMIT,
    }


def _git(*arguments: str) -> bytes:
    result = subprocess.run(
        [shutil.which("git") or "git", *arguments], cwd=ROOT, capture_output=True, timeout=_SECONDS, check=False
    )
    if result.returncode:
        raise CountingError(f"git {arguments[0]}: {result.stderr.decode().strip()}")

    return result.stdout


async def blocks(measured: int = 10_000) -> float:
    """Memory blocks that a delivery of `consume.default` leaves behind; 0 when nothing is kept.

    Every delivery is the same object, so that none of the difference is the stand-in's.
    """
    warm_up, seen = 1000, itertools.count(1)
    marks: list[int] = []

    async def handler(order: Order) -> None:
        if next(seen) in (warm_up, warm_up + measured):
            marks.append(sys.getallocatedblocks())

    repeated = itertools.repeat(ReadyDelivery("key", "key"), warm_up + measured)
    broker: Any = ReadyBroker(lambda: next(repeated, None))
    app = PyStream("bench", plugins=[], on_subscription_end="log").with_broker(broker, mount(handler, ReadySource()))
    gc.collect()
    gc.disable()
    try:
        async with app.start() as running:
            while running.health.active:
                await running.health.changed()
    finally:
        gc.enable()

    first, last = marks
    return (last - first) / measured
