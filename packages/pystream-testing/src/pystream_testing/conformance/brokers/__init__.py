"""Brokers to try the suite with: some are wrong on purpose, some are odd and honest.

Each is a small wrapper around the memory broker. A fault names the check that is meant for
it; a suite that accepts one of them, or refuses an honest one, is itself wrong.
"""

from __future__ import annotations

from pystream_testing.conformance.brokers._catalogue import Fault as Fault
from pystream_testing.conformance.brokers._catalogue import Honest as Honest
from pystream_testing.conformance.brokers._delay_faults import DELAY_FAULTS
from pystream_testing.conformance.brokers._flush_faults import FLUSH_FAULTS
from pystream_testing.conformance.brokers._honest import HONEST as HONEST
from pystream_testing.conformance.brokers._lifecycle_faults import LIFECYCLE_FAULTS
from pystream_testing.conformance.brokers._routing_faults import ROUTING_FAULTS
from pystream_testing.conformance.brokers._settlement_faults import SETTLEMENT_FAULTS
from pystream_testing.conformance.brokers._shape_faults import SHAPE_FAULTS

__all__ = ["FAULTS", "HONEST", "Fault", "Honest"]

FAULTS: tuple[Fault, ...] = (
    *ROUTING_FAULTS,
    *SHAPE_FAULTS,
    *LIFECYCLE_FAULTS,
    *SETTLEMENT_FAULTS,
    *FLUSH_FAULTS,
    *DELAY_FAULTS,
)
"""Every broker that is wrong on purpose, by what it does wrong."""

for _public in (Fault, Honest):
    _public.__module__ = __name__  # tracebacks and references name the path that is promised
