"""Forms with one fault each, which the model has to reject."""

from __future__ import annotations

from tests.core.model.fault import Fault
from tests.core.model.faults_of_batches import BATCH_FAULTS
from tests.core.model.faults_of_threads import THREAD_FAULTS
from tests.core.model.faults_on_loops import LOOP_FAULTS

__all__ = ["FAULTS"]

FAULTS: dict[str, Fault] = LOOP_FAULTS | BATCH_FAULTS | THREAD_FAULTS
