"""Broken gathering of batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from pystream._runtime import subscription
from pystream._runtime.batch_intake import BatchIntake

from tests.core.model.fault import Fault

__all__ = ["BATCH_FAULTS"]


class ForgetsThePartialBatch(BatchIntake):
    """At a stop nobody comes for the batch that is being filled."""

    __slots__ = ()

    @property
    def open(self) -> bool:
        return self._intake.open

    def give_back(self) -> None:
        pass


class GivesThePartialBatchBack(BatchIntake):
    """At a stop the batch that is being filled is not handled."""

    __slots__ = ()

    @property
    def open(self) -> bool:
        if not self._intake.open:
            self.give_back()

        return super().open


class IsNeverDue(BatchIntake):
    """A batch goes out when it is full, and not before."""

    __slots__ = ()

    def close(self) -> None:
        pass


def _of(kind: type[BatchIntake], more: int = 0) -> Callable[[], AbstractContextManager[object]]:
    def made(*args: Any, size: int, **kwargs: Any) -> BatchIntake:
        return kind(*args, size=max(size + more, 1), **kwargs)

    return lambda: mock.patch.object(subscription, "BatchIntake", made)


_ONE, _TWO = "batch=n", "batch=n, workers=2"

BATCH_FAULTS = {
    "a partial batch is dropped at a stop": Fault(_ONE, "drain", patch=_of(ForgetsThePartialBatch)),
    "a partial batch is given back at a stop": Fault(_TWO, "drain", patch=_of(GivesThePartialBatchBack)),
    "a partial batch is never due": Fault(_ONE, "liveness", patch=_of(IsNeverDue)),
    "a batch has one too many": Fault(_ONE, "bound kept", patch=_of(BatchIntake, 1)),
    "a batch goes out before it is full": Fault(_TWO, "order", patch=_of(BatchIntake, -1)),
}
