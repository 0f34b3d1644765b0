"""Which replica a consumer should read from (KIP-392), as Kafka's RackAwareReplicaSelector decides.

Pure. The leader says it in its answers; a consumer then fetches there, until that replica has
nothing to say about what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.partition import PartitionCore


def closest_replica(
    core: PartitionCore, rack: str, offset: int, rack_of: Callable[[int], str | None]
) -> int | None:
    """The broker from which a consumer in `rack` should read on at `offset`; None for us, the
    leader.

    `rack_of` gives a broker's rack, None for one that has none or can't be reached. Of the in-sync
    replicas in that rack that hold the offset it is the one whose log is longest, then the one that
    caught up last. Others may lag, and whoever reads from them lags with them.
    """
    if rack_of(core.broker_id) == rack:
        return None
    nearby = []
    for replica in core.isr:
        remote = core.remotes.get(replica)
        if remote is None or not remote.log_start <= offset <= remote.log_end:
            continue
        if rack_of(replica) == rack:
            nearby.append((remote.log_end, remote.caught_up_ms, replica))
    return max(nearby)[2] if nearby else None
