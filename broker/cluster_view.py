"""The image as clients see it through one listener: who is alive, where, and what is offline."""

from __future__ import annotations

from dataclasses import dataclass

from metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration
from wire.apis import ErrorCode

NO_LEADER = -1
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")

# Without an authorizer everything is allowed: the bits of all operations of the resource type.
ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000
NOT_ASKED = -(1 << 31)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's address on one listener."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as Metadata tells it."""

    error: ErrorCode
    leader: int
    offline: tuple[int, ...]


def node(image: MetadataImage, broker_id: int, listener: str) -> Node | None:
    """The broker's address if it is registered, unfenced, and has the listener."""
    broker = image.broker(broker_id)
    if broker is None or broker.fenced:
        return None
    return _node_of(broker, listener)


def nodes(image: MetadataImage, listener: str, *, fenced: bool = False) -> list[Node]:
    """All brokers alive on the listener by id; with `fenced` those that are fenced too."""
    found = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        if broker.fenced and not fenced:
            continue
        address = _node_of(broker, listener)
        if address is not None:
            found.append(address)
    return found


def controller_for_clients(alive: list[Node], self_id: int) -> int:
    """The node that clients shall send admin requests to: every broker forwards them (KIP-590)."""
    ids = [n.id for n in alive]
    if self_id in ids:
        return self_id
    return ids[0] if ids else -1


def view_partition(
    image: MetadataImage, partition: PartitionRegistration, listener: str, *, name_listener: bool
) -> PartitionView:
    """Leader, error and offline replicas. `name_listener`: the client knows LISTENER_NOT_FOUND."""
    offline = tuple(r for r in partition.replicas if _offline(image, partition, r, listener))
    if node(image, partition.leader, listener) is not None:
        return PartitionView(ErrorCode.none, partition.leader, offline)
    error = ErrorCode.leader_not_available
    leader = image.broker(partition.leader)
    if name_listener and leader is not None and leader.endpoint(listener) is None:
        error = ErrorCode.listener_not_found
    return PartitionView(error, NO_LEADER, offline)


def is_internal(topic: str) -> bool:
    """Whether the topic belongs to the brokers themselves."""
    return topic in INTERNAL_TOPICS


def _node_of(broker: BrokerRegistration, listener: str) -> Node | None:
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return None
    return Node(broker.id, endpoint.host, endpoint.port, broker.rack, broker.fenced)


def _offline(
    image: MetadataImage, partition: PartitionRegistration, replica: int, listener: str
) -> bool:
    broker = image.broker(replica)
    if broker is None or broker.fenced or broker.endpoint(listener) is None:
        return True
    directory = partition.directory_of(replica)
    return directory is not None and not broker.has_online_dir(directory)
