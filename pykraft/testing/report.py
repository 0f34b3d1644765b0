"""What a failing test shows of its clusters: the nodes, and what each logged meanwhile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pykraft.testing.cluster import Cluster, Node
from pykraft.testing.link import ClusterError

_LINES = 40  # of each node, the last ones
_WIDTH = 300
_FIRST = ("timestamp", "level", "event", "node_id")


def log_sizes(cluster: Cluster) -> dict[Path, int]:
    """How long each node's log is now."""
    return {node.log: node.log.stat().st_size for node in cluster.nodes if node.log.exists()}


def describe(cluster: Cluster, since: Mapping[Path, int]) -> str:
    """The nodes and the ends of what they logged `since`; a log that isn't in there, from its
    beginning. One line where there is nothing to tell."""
    states = _states(cluster)
    logged = {node.id: _new_lines(node, since.get(node.log, 0)) for node in cluster.nodes}
    if not any(logged.values()) and set(states.values()) == {"ready"}:
        return f"{cluster!r}: all nodes ready, nothing logged"
    parts = [repr(cluster)]
    for node in cluster.nodes:
        lines = logged[node.id]
        parts.append(f"node {node.id} ({'+'.join(node.roles)}): {states[node.id]}, {node.log}")
        if len(lines) > _LINES:
            parts.append(f"  … {len(lines) - _LINES} lines before")
        parts += [f"  {readable(line)[:_WIDTH]}" for line in lines[-_LINES:]]
    return "\n".join(parts)


def readable(line: str) -> str:
    """A line of a node's log for people: time, level, event, then what goes with it."""
    try:
        entry = json.loads(line)
        time = entry["timestamp"].partition("T")[2][:12]
        head = f"{time} {entry['level']:<8} {entry['event']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line  # what Python itself has to say, such as a traceback
    more = [f"{name}={value}" for name, value in entry.items() if name not in _FIRST]
    return " ".join([head, *more])


def _states(cluster: Cluster) -> dict[int, str]:
    try:
        told = cluster.status()["nodes"]
    except ClusterError as error:
        return dict.fromkeys((node.id for node in cluster.nodes), str(error))
    return {node["id"]: node["state"] for node in told}


def _new_lines(node: Node, since: int) -> list[str]:
    if not node.log.exists():
        return []
    with node.log.open("rb") as log:
        log.seek(since)
        return log.read().decode(errors="replace").splitlines()
