"""The configurations of single groups (KIP-848), with Kafka 4.4's names, types and defaults."""

from __future__ import annotations

from typing import Final

from metadata.configs.definition import ConfigDef, ConfigType, Rule, Scope, Synonym, at_least


def _group(name: str, default: int, rule: Rule, text: str) -> ConfigDef:
    return ConfigDef(
        name=name,
        type=ConfigType.INT,
        default=default,
        help=text,
        scope=Scope.GROUP,
        rule=rule,
        synonyms=(Synonym(f"group.{name}"),),
    )


GROUP_CONFIGS: Final[tuple[ConfigDef, ...]] = (
    _group(
        "consumer.session.timeout.ms",
        45_000,
        at_least(1),
        "Time without heartbeats after which a member of this consumer group is out.",
    ),
    _group(
        "consumer.heartbeat.interval.ms",
        5000,
        at_least(1),
        (
            "Time between the heartbeats of a member of this consumer group; a second at most "
            "while its partitions are about to move."
        ),
    ),
    _group(
        "consumer.assignment.interval.ms",
        1000,
        at_least(0),
        "Shortest time between two target assignments of this consumer group (KIP-1263).",
    ),
)
