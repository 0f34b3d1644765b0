"""The voters that a quorum with kraft.version 1 begins with, as `storage format` is told them."""

from __future__ import annotations

from uuid import UUID

from pykraft.node_config import EVERY_INTERFACE, Address, NodeConfig, parse_target
from raft.voters import MAX_KRAFT_VERSION, ReplicaKey, Voter, VoterSet
from wire import uuids
from wire.errors import DecodeError, ErrorCode, KafkaError
from wire.numbers import INT32_MAX, whole_number

_MADE = "`pykraft storage random-uuid` makes one"
_RULE = f"must be ID@HOST:PORT:DIRECTORY, the directory id as Kafka writes it ({_MADE})"


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """`ID@HOST:PORT:DIRECTORY,...`, as Kafka's tool takes it; the same on every node."""
    voters: dict[int, Voter] = {}
    places: dict[Address, int] = {}
    directories: dict[UUID, int] = {}
    for item in (part.strip() for part in text.split(",")):
        number, at, rest = item.partition("@")
        place, colon, directory = rest.rpartition(":")
        node_id = whole_number(number, INT32_MAX)
        if not (at and colon) or node_id is None:
            raise _bad(item, _RULE)
        if node_id in voters:
            raise _bad(item, f"controller {node_id} is there twice")
        try:
            directory_id = uuids.from_text(directory)
        except DecodeError:
            raise _bad(item, _RULE) from None
        if uuids.is_reserved(directory_id):
            rule = f"must be a random one ({_MADE}), {directory} is among the first 100, reserved"
            raise _bad(item, f"the directory id {rule}")
        if directory_id in directories:
            other = directories[directory_id]
            raise _bad(item, f"controller {other} has the same directory id")
        address = parse_target("--initial-controllers", place)
        if address in places:
            raise _bad(item, f"controller {places[address]} has the same address")
        places[address] = directories[directory_id] = node_id
        voters[node_id] = _voter(node_id, directory_id, listener, address)
    return VoterSet(voters.values())


def check_own_entry(voters: VoterSet, config: NodeConfig) -> str | None:
    """A note on what `voters` say of this node, where it is odd but can be meant, as Kafka's tool
    takes it; KafkaError where no quorum can work so."""
    own, listener = voters.get(config.node_id), config.controller_listener
    if own is None:
        if listener is None:
            return None
        ids = ", ".join(map(str, voters.ids))
        return (
            f"--initial-controllers names controllers {ids}, not this one, {config.node_id}: it "
            "observes their quorum until it is added to it"
        )
    if listener is None:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Invalid --initial-controllers: it names node {config.node_id}, this one, which must "
            "have the controller role to vote",
        )
    host, port = own.endpoints[config.controller_listener_name]
    told = listener.advertised
    if port == told.port:
        return None
    return (
        f"--initial-controllers has this node, {config.node_id}, at {Address(host, port)}, but its "
        f"listener {listener.name} is at {told}: unless something leads from there to here, the "
        "other controllers don't reach it"
    )


def standalone(config: NodeConfig, directory_id: UUID) -> VoterSet:
    """The node itself, alone. KafkaError if it has no controller listener."""
    listener = config.controller_listener
    if listener is None:
        raise KafkaError(
            ErrorCode.invalid_config, "--standalone: the node must have the controller role"
        )
    address = listener.advertised
    return VoterSet([_voter(config.node_id, directory_id, listener.name, address)])


def others_than(config: NodeConfig) -> tuple[Address, ...]:
    """The controllers of controller.quorum.bootstrap.servers that aren't this one."""
    listener, servers = config.controller_listener, config.bootstrap
    if listener is None:
        return servers
    anywhere = listener.bind.host in EVERY_INTERFACE and listener.bind.port
    if len(servers) == 1 and servers[0].port == anywhere:
        return ()  # by a name of this machine that its listener doesn't say
    return tuple(one for one in servers if one not in (listener.bind, listener.advertised))


def _voter(node_id: int, directory_id: UUID, listener: str, address: Address) -> Voter:
    place = (address.host, address.port)
    return Voter(ReplicaKey(node_id, directory_id), {listener: place}, 0, MAX_KRAFT_VERSION)


def _bad(item: str, rule: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, f"Invalid --initial-controllers {item!r}: {rule}")
