"""What a cluster for tests is made of. Only the standard library, like all that tests import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NODES_MAX = 50

# A node's setting, as Python has it or as text.
Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes, and their settings by the names of Kafka's server.properties.

    `controllers` 0 gives every broker both roles. Brokers have the ids 1, 2, 3, …, dedicated
    controllers 101, 102, 103, …. `node_properties` by node id are for one node each and win over
    `properties`, which are for all. Raises ValueError, naming what is allowed.
    """

    brokers: int = 1
    controllers: int = 0
    properties: Mapping[str, Value] = field(default_factory=dict)
    node_properties: Mapping[int, Mapping[str, Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("brokers", "controllers"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int):
                raise ValueError(f"{name}={count!r}: must be a whole number")
            if not 0 <= count <= NODES_MAX:
                raise ValueError(f"{name}={count}: 0 to {NODES_MAX} are allowed")
        if self.brokers == 0:
            raise ValueError("brokers=0: at least 1 is needed, clients talk to brokers")
        _check_properties("properties", self.properties)
        known = ", ".join(map(str, self.node_ids))
        for id_, properties in self.node_properties.items():
            if id_ not in self.node_ids:
                raise ValueError(f"node_properties: no node {id_!r}; the nodes are {known}")
            _check_properties(f"node_properties[{id_}]", properties)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Every node's id, brokers first."""
        brokers = range(1, self.brokers + 1)
        return (*brokers, *range(101, 101 + self.controllers))

    @property
    def key(self) -> str:
        """Equal for equal shapes."""
        return repr((self.brokers, self.controllers, self.settings()))

    def settings(self) -> dict[int, dict[str, str]]:
        """Each node's own settings as texts, by node id and name."""
        return {
            id_: {
                name: _text(value)
                for name, value in sorted(
                    {**self.properties, **self.node_properties.get(id_, {})}.items()
                )
            }
            for id_ in self.node_ids
        }

    def __str__(self) -> str:
        """As short as a test's id should be: `3+3` are three controllers and three brokers."""
        text = f"{self.controllers}+{self.brokers}" if self.controllers else str(self.brokers)
        own = [f"{name}={_text(value)}" for name, value in sorted(self.properties.items())]
        own += [f"node_properties={self.settings()}"] if self.node_properties else []
        return ",".join([text, *own])


def _check_properties(what: str, properties: Any) -> None:
    if not isinstance(properties, Mapping):
        raise ValueError(f"{what}={properties!r}: must map names to values")
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
            raise ValueError(f"{what}: {name!r}: {value!r}: must be a name and a text or number")


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
