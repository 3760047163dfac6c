"""Which server the demo runs on: the one of `--url`, else an embedded one, else the memory broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["server_url"]

_MEMORY = "memory://"


@contextmanager
def server_url(url: str | None, say: Callable[[str], None]) -> Iterator[str]:
    """The URL of a server that lasts as long as the `with` block.

    Args:
        url: The user's own server; none for an embedded Pulsar server.
        say: Is told why, where the memory broker stands in for the embedded server.

    Raises:
        EmbeddedServerError: There is an embedded server, but it does not start.
    """
    with ExitStack() as stack:
        yield _embedded(stack, say) if url is None else url


def _embedded(stack: ExitStack, say: Callable[[str], None]) -> str:
    try:
        from pystream_testing.pulsar import EmbeddedPulsar, EmbeddedServerMissing
    except ImportError:
        say('No embedded server: install "pystream-testing[pulsar]" for one. The memory broker stands in.')
        return _MEMORY

    try:
        return stack.enter_context(EmbeddedPulsar()).url
    except EmbeddedServerMissing as error:
        say(f"No embedded server: {error}. The memory broker stands in.")
        return _MEMORY
