"""`pykraft cluster`: a local cluster in the background."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pykraft.cli import values
from pykraft.interrupts import Interrupts
from pykraft.local_cluster import LocalCluster, default_directory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    up = _verb(verbs, "up", "start it (made on first use); returns when clients can use it", _up)
    up.add_argument(
        "--controllers",
        type=values.count_or_none,
        help="0: every broker has both roles (default: as it is, or 3)",
    )
    up.add_argument(
        "--brokers", type=values.count_or_none, help="default: as many as there are, or 3"
    )
    up.add_argument("--base-port", type=values.port, help="ports from here on (default: free ones)")
    up.add_argument("--json", action="store_true")

    status = _verb(verbs, "status", "its nodes, where they listen, how they are", _status)
    status.add_argument("--json", action="store_true")

    for name, summary, run in (
        ("kill", "end nodes at once (SIGKILL), as a crash would", _kill),
        ("start", "start nodes that are down; returns when they are ready", _start),
        ("stop", "controlled shutdown: leaders move, all is written", _stop),
    ):
        verb = _verb(verbs, name, summary, run)
        if name == "start":
            verb.add_argument(
                "ids", metavar="ID", type=values.node_id, nargs="*", help="default: all"
            )
        else:
            verb.add_argument("ids", metavar="ID", type=values.node_id, nargs="+")

    down = _verb(verbs, "down", "stop every node; data stays", _down)
    down.add_argument("--delete", action="store_true", help="remove the nodes' data too")


def _verb(verbs: Any, name: str, summary: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=summary, description=summary)
    parser.add_argument(
        "--dir",
        type=values.path,
        default=None,
        help="where it lives (default: $PYKRAFT_HOME or .pykraft)",
    )
    parser.set_defaults(run=run)
    return parser


def _cluster(options: argparse.Namespace, interrupts: Interrupts | None = None) -> LocalCluster:
    return LocalCluster(options.dir or default_directory(), interrupts)


def _up(options: argparse.Namespace) -> int:
    with Interrupts() as interrupts:
        status = _cluster(options, interrupts).up(
            options.controllers, options.brokers, options.base_port
        )
    _show(status, as_json=options.json)
    return 0


def _status(options: argparse.Namespace) -> int:
    _show(_cluster(options).status(), as_json=options.json)
    return 0


def _kill(options: argparse.Namespace) -> int:
    _cluster(options).kill(options.ids)
    return 0


def _start(options: argparse.Namespace) -> int:
    with Interrupts() as interrupts:
        _cluster(options, interrupts).start(options.ids)
    return 0


def _stop(options: argparse.Namespace) -> int:
    _cluster(options).stop(options.ids)
    return 0


def _down(options: argparse.Namespace) -> int:
    _cluster(options).down(delete=options.delete)
    return 0


def _show(status: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(status))
        return
    print(f"cluster           {status['cluster_id']}")
    print(f"bootstrap servers {status['bootstrap_servers']}")
    print(f"admin (gRPC)      {status['admin']}")
    print(f"active controller {status['active_controller'] or 'none'}")
    for node in status["nodes"]:
        roles = "+".join(node["roles"])
        print(
            f"{node['id']:>5}  {roles:<17} {node['state']:<9} pid {node['pid'] or '-':<8} "
            f"kafka {node['kafka']}  metrics {node['metrics']}"
        )
