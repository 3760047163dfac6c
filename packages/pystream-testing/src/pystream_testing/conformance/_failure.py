"""How a check says that a broker does not keep the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

__all__ = ["ConformanceFailure", "expect", "within"]


class ConformanceFailure(AssertionError):
    """A broker that does not do what the contract or its own declaration says."""


def expect(condition: bool, failure: str) -> None:
    """Fail with the sentence `failure` unless the condition holds.

    Raises:
        ConformanceFailure: It does not.
    """
    if not condition:
        raise ConformanceFailure(failure)


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Bound the block in time.

    Raises:
        ConformanceFailure: It took longer.
    """
    with anyio.move_on_after(seconds) as scope:
        yield

    if scope.cancelled_caught:
        raise ConformanceFailure(f"{what} took longer than {seconds:g} s")
