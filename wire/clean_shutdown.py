"""`.kafka_cleanshutdown`: that a broker closed its logs, and its epoch then (KIP-966)."""

from __future__ import annotations

import json

FILE_NAME = ".kafka_cleanshutdown"


def encode(broker_epoch: int) -> bytes:
    """The marker of a broker that stopped in this epoch."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode(data: bytes) -> int | None:
    """The broker epoch; None where the content doesn't tell (older brokers wrote none).

    That the file exists is what says the shutdown was clean, so no content is an error.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("version") != 0:
        return None
    epoch = document.get("brokerEpoch")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
        return None
    return epoch
