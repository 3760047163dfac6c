"""The configuration file of the real server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["HOST", "text"]

HOST: Final = "127.0.0.1"

_MAX_MESSAGE_SIZE = 5 * 1024 * 1024

_OPTIONS: Final = {
    "clusterName": "standalone",
    "advertisedAddress": HOST,
    "bindAddress": HOST,
    "metadataStoreUrl": "",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    # Storage must take a little more than the broker does: a message between the two limits would be
    # retried for ever, and nothing else be stored meanwhile.
    "maxMessageSize": str(_MAX_MESSAGE_SIZE),
    "nettyMaxFrameSizeBytes": str(_MAX_MESSAGE_SIZE + 10 * 1024),
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "delayedDeliveryTickTimeMillis": "100",
    "activeConsumerFailoverDelayTimeMillis": "0",
}


def text(ports: tuple[int, int], options: Mapping[str, str]) -> str:
    """The file's content.

    Args:
        ports: Those of the binary protocol and of the admin interface.
        options: What this server has besides.
    """
    port, web_port = ports
    lines = {**_OPTIONS, "brokerServicePort": str(port), "webServicePort": str(web_port), **options}
    return "".join(f"{name}={value}\n" for name, value in lines.items())
