"""The pipeline of a batch with an instrument compiled in; only `pystream.harness` imports it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, cast

from pystream._runtime.batch import Batch
from pystream._runtime.batch_handling import BatchCall, compile_batch_call
from pystream._runtime.batching import Batches, Decided, Run, no_single
from pystream._runtime.live import LiveMount
from pystream._runtime.observed import ObservedPauses, ObservedSettling, Probe
from pystream._runtime.pauses import Pauses
from pystream._runtime.starter import Start, in_fresh_context
from pystream._runtime.verdicts import Verdicts, settle_in
from pystream.context import BatchContext
from pystream.outcomes import Outcome
from pystream.parameters import Undecodable
from pystream.protocols import Delivery


def compile_observed_batches(live: LiveMount, probe: Probe) -> Start[Batch]:
    """What `compile_batches` makes, with a probe in it."""
    live = replace(live, pauses=cast("Pauses", ObservedPauses(live.pauses, probe)))
    verdicts = Verdicts(live)
    settling = ObservedSettling(live, verdicts, no_single, probe)
    batches = ObservedBatches(live, verdicts, settling, _observed_call(compile_batch_call(live), probe), probe)
    return in_fresh_context(batches.process, live.base)


def _observed_call(call: BatchCall, probe: Probe) -> BatchCall:
    async def observed(values: list[Any], context: BatchContext) -> Any:
        deliveries = context._deliveries
        probe.batch_called(deliveries, values)
        try:
            return await call(values, context)
        except BaseException as error:
            if settle_in(error) is None:
                for delivery in deliveries:
                    probe.failed(delivery, error)

            raise

    return observed


class ObservedBatches(Batches):
    """Tells a probe of every batch, and of each delivery in it."""

    def __init__(
        self, live: LiveMount, verdicts: Verdicts, settling: ObservedSettling, call: BatchCall, probe: Probe
    ) -> None:
        super().__init__(live, verdicts, settling, call)
        self._probe = probe
        self._observed = settling

    async def process(self, batch: Batch) -> None:
        """See `Batches.process`."""
        self._probe.batch_began(batch.deliveries)
        try:
            await super().process(batch)
        finally:
            self._probe.batch_ended(batch.deliveries)

    async def _acknowledge(self, run: Run) -> None:
        while run._open:
            delivery = run._open.pop(0)
            self._probe.handled(delivery, self._acknowledged)
            await self._observed.acknowledge(delivery, self._acknowledged)

    def _spent(self, delivery: Delivery) -> Outcome:
        self._probe.refused(delivery, None)
        return super()._spent(delivery)

    def _refuse(self, delivery: Delivery, error: Undecodable, run: Run) -> Outcome | None:
        self._probe.refused(delivery, error.error)
        outcome = super()._refuse(delivery, error, run)
        self._probe.handled(delivery, outcome)
        return outcome

    def _to_settle(self, run: Run, decided: list[Decided]) -> deque[Decided]:
        for delivery, outcome, _ in decided:
            self._probe.handled(delivery, outcome)

        return super()._to_settle(run, decided)

    def _leave(self, run: Run) -> None:
        for delivery in run._open:
            self._probe.handled(delivery, None)

        super()._leave(run)
