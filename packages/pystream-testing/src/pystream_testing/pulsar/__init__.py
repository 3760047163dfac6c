"""A real Pulsar server for tests and demos: `EmbeddedPulsar`, and the fixture `pulsar_server`.

Needs the extra: `pip install "pystream-testing[pulsar]"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pystream_testing.pulsar._embedded import EmbeddedPulsar as EmbeddedPulsar
from pystream_testing.pulsar._errors import EmbeddedServerError as EmbeddedServerError
from pystream_testing.pulsar._errors import EmbeddedServerMissing as EmbeddedServerMissing

if TYPE_CHECKING:
    from pystream_testing.pulsar._fixtures import pulsar_server as pulsar_server

__all__ = ["EmbeddedPulsar", "EmbeddedServerError", "EmbeddedServerMissing", "pulsar_server"]

for _public in (EmbeddedPulsar, EmbeddedServerError, EmbeddedServerMissing):
    _public.__module__ = __name__  # tracebacks and references name the path that is promised


def __getattr__(name: str) -> Any:
    # Late: the fixture needs pytest, and a program that only wants the server has none.
    if name != "pulsar_server":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    from pystream_testing.pulsar._fixtures import pulsar_server

    return pulsar_server
