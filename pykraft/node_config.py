"""A node's settings: Kafka's `server.properties`, checked as a whole before anything starts.

Single values are defined and checked in `metadata.configs`; here is what they mean together:
listeners, addresses, voters. A bad combination is one clear KafkaError(INVALID_CONFIG).
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from metadata.configs import NODE, StaticConfig
from wire import properties
from wire.addresses import is_host, split_address, split_target
from wire.errors import DecodeError, ErrorCode, KafkaError
from wire.numbers import INT32_MAX, whole_number

_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_SERVED_PROTOCOLS = ("PLAINTEXT",)
EVERY_INTERFACE = ("", "0.0.0.0", "::")
_ALIKE = 0.85  # a letter or two of a name
_LISTENER = re.compile(r"^([A-Za-z0-9_-]+)://(.*):(\d{1,5})$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """One Kafka listener: where it binds, and the address that others are told."""

    name: str
    bind: Address
    advertised: Address
    protocol: int


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything a node needs to start. `static` has the single values by Kafka's names. The
    quorum is found by its static `voters`, or by asking the servers of `bootstrap`."""

    static: StaticConfig
    node_id: int
    roles: tuple[str, ...]
    broker_listeners: tuple[Listener, ...]
    controller_listener: Listener | None
    controller_listener_name: str
    inter_broker_listener: str | None
    voters: Mapping[int, Address]
    bootstrap: tuple[Address, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    admin: Address | None
    metrics: Address

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


def invalid(name: str, value: object, rule: str) -> KafkaError:
    """The error for a setting: its name, its value, what is allowed."""
    shown = str(value)
    if not shown or not shown.isprintable():
        shown = repr(shown)
    return KafkaError(ErrorCode.invalid_config, f"Invalid value {shown} for {name}: {rule}")


def resembling(name: str) -> str | None:
    """The setting that is probably meant by a name that is none; None for a setting's own name."""
    if name in NODE:
        return None
    return next(iter(difflib.get_close_matches(name, NODE, n=1, cutoff=_ALIKE)), None)


def parse_address(name: str, text: str) -> Address:
    """Where this node listens: no host is every interface, port 0 a free one."""
    found = split_address(text)
    if found is None:
        raise invalid(name, text, "must be host:port with a port of 0 to 65535")
    address = Address(*found)
    if address.host:
        check_host(name, text, address)
    return address


def parse_target(name: str, text: str) -> Address:
    """Where another node is found, which has a host and a port."""
    found = split_target(text)
    if found is None:
        raise invalid(name, text, "must be host:port with a port of 1 to 65535")
    address = Address(*found)
    check_host(name, text, address)
    return address


def check_host(name: str, text: str, address: Address) -> None:
    """KafkaError(INVALID_CONFIG) where nothing has such a host."""
    if not is_host(address.host):
        raise invalid(name, text, f"{address.host!r} is neither an address nor a host name")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_properties(text: str, source: str) -> dict[str, str]:
    """The names and values of a properties file; KafkaError, naming it, where malformed."""
    try:
        return properties.parse(text)
    except DecodeError as error:
        raise KafkaError(ErrorCode.invalid_config, f"{source}: {error}") from error


def parse_node_config(values: Mapping[str, str]) -> NodeConfig:
    """The node's configuration; KafkaError(INVALID_CONFIG) where its properties are bad."""
    static = StaticConfig(values)
    roles = tuple(dict.fromkeys(static["process.roles"]))
    if not roles:
        raise invalid("process.roles", "", "must name broker, controller, or both")
    protocols = _protocol_map(static["listener.security.protocol.map"])
    controller_names = [
        name.strip()
        for name in (static["controller.listener.names"] or "").split(",")
        if name.strip()
    ]
    if not controller_names:
        raise invalid("controller.listener.names", "", "must name the controllers' listener")
    bound = _listeners("listeners", static["listeners"])
    advertised = _advertised(static["advertised.listeners"] or "")
    listeners = [
        _listener(name, address, advertised.get(name, address), protocols)
        for name, address in bound.items()
    ]
    controllers = [listener for listener in listeners if listener.name in controller_names]
    brokers = [listener for listener in listeners if listener.name not in controller_names]
    _check_roles(roles, controllers, brokers, static["listeners"])
    log_dirs = _log_dirs(static)
    voters = _voters(static["controller.quorum.voters"])
    name = "controller.quorum.bootstrap.servers"
    bootstrap = tuple(_server(name, item) for item in static[name])
    if not voters and not bootstrap:
        rule = f"must name the controllers: id@host:port, …; or set {name} to host:port, …"
        raise invalid("controller.quorum.voters", "", rule)
    if static["controller.quorum.auto.join.enable"] and "controller" not in roles:
        rule = "only a node with the controller role can join the quorum"
        raise invalid("controller.quorum.auto.join.enable", "true", rule)
    node_id = static["node.id"]
    if voters:
        _check_voters(node_id, roles, voters)
    admin = _admin(static) if "controller" in roles else None
    metrics = parse_address("pykraft.metrics.listener", static["pykraft.metrics.listener"])
    places = [("listeners", listener.bind) for listener in listeners]
    if admin is not None:
        places.append(("pykraft.admin.listener", admin))
    _check_places([*places, ("pykraft.metrics.listener", metrics)])
    return NodeConfig(
        static=static,
        node_id=node_id,
        roles=roles,
        broker_listeners=tuple(brokers),
        controller_listener=controllers[0] if controllers else None,
        controller_listener_name=controller_names[0],
        inter_broker_listener=_inter_broker(static, brokers) if brokers else None,
        voters=voters,
        bootstrap=bootstrap,
        log_dirs=log_dirs,
        metadata_log_dir=_directory(static["metadata.log.dir"] or log_dirs[0]),
        admin=admin,
        metrics=metrics,
    )


def _protocol_map(text: str) -> dict[str, str]:
    pairs = {}
    for item in text.split(","):
        name, colon, protocol = item.strip().partition(":")
        if not colon or protocol not in _PROTOCOLS:
            raise invalid(
                "listener.security.protocol.map",
                item,
                f"must be NAME:one of {', '.join(_PROTOCOLS)}",
            )
        pairs[name] = protocol
    return pairs


def _listeners(setting: str, text: str) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        match = _LISTENER.match(item)
        if match is None or int(match[3]) > 65535:
            raise invalid(setting, item, "must be NAME://host:port with a port of 0 to 65535")
        name, host = match[1].upper(), match[2].removeprefix("[").removesuffix("]")
        if name in found:
            raise invalid(setting, text, f"the listener {name} is there twice")
        found[name] = Address(host, int(match[3]))
        if host:
            check_host(setting, item, found[name])
    return found


def _advertised(text: str) -> dict[str, Address]:
    found = _listeners("advertised.listeners", text)
    for name, address in found.items():
        if address.host in EVERY_INTERFACE:
            rule = "must name a host that clients can reach, not every interface"
            raise invalid("advertised.listeners", f"{name}://{address}", rule)
    return found


def _listener(
    name: str, bind: Address, advertised: Address, protocols: Mapping[str, str]
) -> Listener:
    protocol = protocols.get(name)
    if protocol is None:
        raise invalid("listeners", name, "must have an entry in listener.security.protocol.map")
    if protocol not in _SERVED_PROTOCOLS:
        served = ", ".join(_SERVED_PROTOCOLS)
        raise invalid(
            "listener.security.protocol.map",
            f"{name}:{protocol}",
            f"only {served} is served so far",
        )
    if advertised.host in EVERY_INTERFACE:
        # Every interface, of which clients can't be told: they get this machine's own name for it.
        advertised = Address("localhost", advertised.port)
    return Listener(name, bind, advertised, _PROTOCOLS[protocol])


def _check_roles(
    roles: tuple[str, ...], controllers: list[Listener], brokers: list[Listener], listed: str
) -> None:
    if "controller" in roles and not controllers:
        rule = "a controller needs a listener of controller.listener.names"
        raise invalid("listeners", listed, rule)
    if "controller" not in roles and controllers:
        name = controllers[0].name
        raise invalid("listeners", name, "a node without the controller role must not have it")
    if "broker" in roles and not brokers:
        raise invalid("listeners", listed, "a broker needs a listener that is not the controllers'")
    if "broker" not in roles and brokers:
        name = brokers[0].name
        raise invalid("listeners", name, "a node without the broker role must not have it")


def _check_places(places: Sequence[tuple[str, Address]]) -> None:
    """Each has a port of its own; port 0 is a free one."""
    taken: dict[Address, str] = {}
    for setting, place in places:
        if place.port and place in taken:
            raise invalid(setting, place, f"{taken[place]} has the same address")
        taken[place] = setting


def _log_dirs(static: StaticConfig) -> tuple[str, ...]:
    for name in ("log.dirs", "metadata.log.dir"):
        # A template's variable that is not set, no wish for the default.
        if static[name] == "":
            raise invalid(name, "", "must name a directory; without this line it is the default")
    paths = tuple(_directory(path) for path in static.log_dirs)
    if not paths:
        raise invalid("log.dirs", "", "must name a directory")
    for path in paths:
        if paths.count(path) > 1:
            raise invalid("log.dirs", ",".join(static.log_dirs), f"{path} is there twice")
    return paths


def _directory(path: str) -> str:
    """Without what is said twice or for nothing, but for `..`: a link may come before it."""
    return str(PurePosixPath(path))


def _server(name: str, item: str) -> Address:
    """One of the controllers to ask."""
    if "@" in item:
        raise invalid(name, item, "must be host:port; ids belong into controller.quorum.voters")
    return parse_target(name, item)


def _voters(items: tuple[str, ...]) -> dict[int, Address]:
    voters: dict[int, Address] = {}
    for item in items:
        text, at, address = item.strip().partition("@")
        node_id = whole_number(text, INT32_MAX)
        if not at or node_id is None:
            raise invalid("controller.quorum.voters", item, "must be id@host:port")
        if node_id in voters:
            raise invalid("controller.quorum.voters", item, f"the voter {text} is there twice")
        place = parse_target("controller.quorum.voters", address)
        if place in voters.values():
            other = next(voter for voter, taken in voters.items() if taken == place)
            raise invalid("controller.quorum.voters", item, f"voter {other} has the same address")
        voters[node_id] = place
    return voters


def _check_voters(node_id: int, roles: tuple[str, ...], voters: Mapping[int, Address]) -> None:
    ids = ", ".join(str(voter) for voter in voters)
    if "controller" in roles and node_id not in voters:
        raise invalid("node.id", node_id, f"a controller must be one of the voters ({ids})")
    if "controller" not in roles and node_id in voters:
        raise invalid("node.id", node_id, f"a voter ({ids}) must have the controller role")


def _inter_broker(static: StaticConfig, brokers: list[Listener]) -> str:
    name: str | None = static["inter.broker.listener.name"]
    names = [listener.name for listener in brokers]
    if name is None:
        return "PLAINTEXT" if "PLAINTEXT" in names else names[0]
    if name not in names:
        raise invalid("inter.broker.listener.name", name, f"must be one of {', '.join(names)}")
    return name


def _admin(static: StaticConfig) -> Address:
    address = parse_address("pykraft.admin.listener", static["pykraft.admin.listener"])
    if not is_loopback(address.host) and not static["pykraft.admin.allow.plaintext"]:
        raise invalid(
            "pykraft.admin.listener",
            address,
            "must be a loopback address, since this gRPC listener has no TLS, unless "
            "pykraft.admin.allow.plaintext=true says that it is meant so",
        )
    return address
