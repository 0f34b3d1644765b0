"""The voters that a quorum with kraft.version 1 begins with, as `storage format` is told them."""

from __future__ import annotations

from uuid import UUID

from pykraft.node_config import Address, NodeConfig, parse_address
from raft.voters import MAX_KRAFT_VERSION, ReplicaKey, Voter, VoterSet
from wire import uuids
from wire.errors import DecodeError, ErrorCode, KafkaError

_RULE = "must be ID@HOST:PORT:DIRECTORY, the directory id as Kafka writes it"


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """`ID@HOST:PORT:DIRECTORY,...`, as Kafka's tool takes it; the same on every node."""
    voters: dict[int, Voter] = {}
    for item in (part.strip() for part in text.split(",")):
        node_id, at, rest = item.partition("@")
        place, colon, directory = rest.rpartition(":")
        if not (at and colon and node_id.isascii() and node_id.isdigit()):
            raise _bad(item, _RULE)
        if int(node_id) in voters:
            raise _bad(item, f"controller {node_id} is there twice")
        try:
            directory_id = uuids.from_text(directory)
        except DecodeError:
            raise _bad(item, _RULE) from None
        if directory_id.int < 100:
            raise _bad(item, f"directory id {directory} is a reserved one")
        address = parse_address("--initial-controllers", place)
        voters[int(node_id)] = _voter(int(node_id), directory_id, listener, address)
    return VoterSet(voters.values())


def standalone(config: NodeConfig, directory_id: UUID) -> VoterSet:
    """The node itself, alone. KafkaError if it has no controller listener."""
    listener = config.controller_listener
    if listener is None:
        raise KafkaError(
            ErrorCode.invalid_config, "--standalone: the node must have the controller role"
        )
    address = listener.advertised
    return VoterSet([_voter(config.node_id, directory_id, listener.name, address)])


def _voter(node_id: int, directory_id: UUID, listener: str, address: Address) -> Voter:
    place = (address.host, address.port)
    return Voter(ReplicaKey(node_id, directory_id), {listener: place}, 0, MAX_KRAFT_VERSION)


def _bad(item: str, rule: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, f"Invalid --initial-controllers {item!r}: {rule}")
