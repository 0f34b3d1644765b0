"""A cluster of node processes on this machine, in one directory.

    DIR/cluster.lock              held by the command that changes the cluster
    DIR/cluster.json              who the nodes are and where they listen; written once
    DIR/nodes/ID/server.properties
    DIR/nodes/ID/data/            the node's log directory
    DIR/nodes/ID/node.log         what the process wrote (JSON lines)
    DIR/nodes/ID/process.json     the last process: pid, when created, whether stopped on purpose

Nodes are detached (own session, no standard streams of the caller): they outlive the command that
started them, and anyone may kill one by its pid. A pid is believed only together with the time its
process was created, so that a reused number is never taken for a node.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

from pykraft import launcher
from pykraft.cli import CommandError
from pykraft.interrupts import Interrupts
from pykraft.node_files import NodeSpec, new_cluster_id, write_node
from pykraft.ports import free_ports

HOST = "127.0.0.1"
FIRST_CONTROLLER_ID = 101  # brokers are 1, 2, 3, …; dedicated controllers 101, 102, 103, …
DEFAULT_CONTROLLERS = DEFAULT_BROKERS = 3
NODES_MAX = 50
LOCK = "cluster.lock"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.001


class LocalCluster:
    """The cluster in one directory; every method is one command of `pykraft cluster`."""

    def __init__(self, directory: Path, interrupts: Interrupts | None = None) -> None:
        """`interrupts`: what holds signals back while a node is being started."""
        self.directory = directory.resolve()
        self._interrupts = interrupts
        self._file = self.directory / "cluster.json"

    def exists(self) -> bool:
        """Has a cluster been made here?"""
        return self._file.exists()

    # -- commands ---------------------------------------------------------------------------

    def up(
        self,
        controllers: int | None = None,
        brokers: int | None = None,
        base_port: int | None = None,
    ) -> dict[str, Any]:
        """Makes the cluster if it isn't there, starts what doesn't run, returns its status.

        `controllers` 0 gives every broker both roles; None takes what is there, or 3. Raises
        CommandError where the directory holds a cluster of another shape or a node can't start.
        KeyboardInterrupt ends the nodes that it has started.
        """
        if self.exists():
            self._check_same_shape(controllers, brokers)
        else:
            controllers = DEFAULT_CONTROLLERS if controllers is None else controllers
            brokers = DEFAULT_BROKERS if brokers is None else brokers
            _check_shape(controllers, brokers)
            with self._locked():
                if not self.exists():
                    self.create(plan(controllers, brokers, base_port))
        with self._locked():
            self._start(self.nodes())
        return self.status()

    def status(self) -> dict[str, Any]:
        """The document of `pykraft cluster status --json`."""
        nodes = self.nodes()
        with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
            rows = list(pool.map(self._describe, nodes))
        active = [row["id"] for row in rows if row.pop("active")]
        return {
            "cluster_id": self._load()["cluster_id"],
            "bootstrap_servers": self.bootstrap_addresses(),
            "admin": self.admin_addresses(),
            "active_controller": active[0] if len(active) == 1 else None,
            "nodes": rows,
        }

    def kill(self, ids: Sequence[int]) -> None:
        """SIGKILL; returns when the processes are gone."""
        named = self._named(ids)
        with self._locked():
            for node in named:
                process = self.process(node)
                if process is None:
                    raise CommandError(f"node {node.id} is not running, nothing to kill")
                process.kill()
                _wait_ended(process, STOP_TIMEOUT_S)

    def start(self, ids: Sequence[int]) -> None:
        """Starts nodes that are down (no ids: all); returns when all named are ready.

        KeyboardInterrupt ends those that it has started.
        """
        named = self._named(ids) if ids else self.nodes()
        with self._locked():
            self._start(named)

    def stop(self, ids: Sequence[int]) -> None:
        """A controlled shutdown; returns when the processes have ended."""
        named = self._named(ids)
        with self._locked():
            self._stop(named)

    def pause(self, ids: Sequence[int]) -> None:
        """SIGSTOP: the processes keep their connections and stand still, when this returns."""
        for process in self._signal(ids, signal.SIGSTOP):
            while process.status() != psutil.STATUS_STOPPED:
                time.sleep(_POLL_S)

    def resume(self, ids: Sequence[int]) -> None:
        """SIGCONT: paused processes go on."""
        self._signal(ids, signal.SIGCONT)

    def down(self, *, delete: bool = False) -> None:
        """Stops every node, brokers first; `delete` removes their data too, and the folder if
        nothing else is in it."""
        nodes = self.nodes()
        with self._locked():
            self._stop_in_order(nodes)
            if delete:
                shutil.rmtree(self.directory / "nodes")
                self._file.unlink()
                (self.directory / LOCK).unlink()
                with suppress(OSError):  # others keep something there, too
                    self.directory.rmdir()

    # -- what is written down ---------------------------------------------------------------

    def nodes(self) -> list[NodeSpec]:
        """Every node of the cluster, running or not."""
        return [
            NodeSpec(**{**entry, "roles": tuple(entry["roles"])}) for entry in self._load()["nodes"]
        ]

    def node_directory(self, node: NodeSpec) -> Path:
        """Where the node's files are."""
        return self.directory / "nodes" / str(node.id)

    def admin_addresses(self) -> str:
        """The gRPC listeners of the controllers, comma-separated."""
        return ",".join(node.admin for node in self.nodes() if node.admin)

    def bootstrap_addresses(self) -> str:
        """The brokers' listeners for clients, comma-separated."""
        return ",".join(node.broker for node in self.nodes() if node.broker)

    def _load(self) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(self._file.read_text())
        except FileNotFoundError:
            raise CommandError(
                f"no cluster in {self.directory}: `pykraft cluster up` makes one, --dir names "
                "another folder"
            ) from None
        except ValueError as error:
            raise CommandError(f"{self._file} is damaged: {error}") from None
        return document

    def _named(self, ids: Sequence[int]) -> list[NodeSpec]:
        nodes = {node.id: node for node in self.nodes()}
        unknown = [str(id_) for id_ in ids if id_ not in nodes]
        if unknown:
            known = ", ".join(str(id_) for id_ in nodes)
            raise CommandError(
                f"no node {', '.join(unknown)} in this cluster; its nodes are {known}"
            )
        return [nodes[id_] for id_ in dict.fromkeys(ids)]

    def _check_same_shape(self, controllers: int | None, brokers: int | None) -> None:
        nodes = self.nodes()
        has = (sum(not node.broker for node in nodes), sum(bool(node.broker) for node in nodes))
        asked = (
            has[0] if controllers is None else controllers,
            has[1] if brokers is None else brokers,
        )
        if has != asked:
            raise CommandError(
                f"{self.directory} holds a cluster with --controllers {has[0]} --brokers {has[1]}, "
                f"not {asked[0]} and {asked[1]}: give its own shape, another --dir, or "
                "`pykraft cluster down --delete` it first"
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One command changes the cluster at a time; another waits."""
        with self._lock_file():
            yield

    def _lock_file(self) -> IO[str]:
        """The lock, taken: its file, open."""
        lock = self.directory / LOCK
        while True:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                handle = lock.open("w")
            except OSError as error:
                raise CommandError(f"can't use {self.directory}: {error.strerror}") from None
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Whoever held it may have removed the cluster, the file with it: another command could
            # hold a new one by now.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle.fileno()), lock.stat()):
                    return handle
            handle.close()

    def create(
        self, nodes: Sequence[NodeSpec], settings: Mapping[int, Mapping[str, str]] | None = None
    ) -> None:
        """Writes the files of a cluster of these nodes; starts none of them.

        `settings` by node id win over the properties that a node of a local cluster has.
        """
        if (self.directory / "nodes").exists():
            raise CommandError(
                f"{self.directory / 'nodes'} is there without a cluster.json: remove it or give "
                "another --dir"
            )
        cluster_id = new_cluster_id()
        try:
            for node in nodes:
                own = (settings or {}).get(node.id, {})
                write_node(self.node_directory(node), node, nodes, cluster_id, own)
        except BaseException:
            # Half a cluster would be in the way of the next attempt.
            shutil.rmtree(self.directory / "nodes", ignore_errors=True)
            raise
        document = {
            "version": 1,
            "cluster_id": cluster_id,
            "nodes": [asdict(node) for node in nodes],
        }
        temporary = self._file.with_suffix(".tmp")
        temporary.write_text(json.dumps(document, indent=1))
        temporary.replace(self._file)

    # -- processes --------------------------------------------------------------------------

    def process(self, node: NodeSpec) -> psutil.Process | None:
        """The node's process where it lives."""
        try:
            record = json.loads((self.node_directory(node) / "process.json").read_text())
            process = psutil.Process(record["pid"])
            if abs(process.create_time() - record["created"]) > 1.0:
                return None
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except (FileNotFoundError, psutil.NoSuchProcess):
            return None

    def _start(self, nodes: Sequence[NodeSpec]) -> None:
        """Starts those that don't run; returns when all are ready."""
        running = [node for node in nodes if self.process(node)]
        missing = [node for node in nodes if node not in running]
        started: list[launcher.Starting] = []
        try:
            for node in missing:
                # A process that isn't written down yet could not be ended.
                with self._interrupts.held() if self._interrupts else nullcontext():
                    started.append(self._launch(node))
            launcher.wait_until_ready(started, START_TIMEOUT_S)
            for node in running:
                launcher.wait_until_answered(
                    node.id, node.metrics, partial(self.process, node), START_TIMEOUT_S
                )
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(self._undo_start(missing))
            raise

    def _launch(self, node: NodeSpec) -> launcher.Starting:
        return launcher.launch(
            node.id, node.metrics, self.node_directory(node), self._record_process
        )

    def _undo_start(self, nodes: Sequence[NodeSpec]) -> str:
        """Ends nodes that were just started, in order, or at once when interrupted again; says
        what it did."""
        begun = [node for node in nodes if self.process(node)]
        if not begun:
            return "interrupted; no node was started"
        how = "stopped"
        try:
            self._stop_in_order(begun)
        except (KeyboardInterrupt, CommandError):
            how = "killed"
            for process in filter(None, map(self.process, begun)):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        ids = ", ".join(str(node.id) for node in begun)
        return f"interrupted; the nodes that this command had started are {how}: {ids}"

    def _record_process(self, directory: Path, pid: int, *, stopped: bool = False) -> None:
        created = psutil.Process(pid).create_time() if not stopped else 0.0
        record = {"pid": pid, "created": created, "stopped": stopped}
        temporary = directory / "process.json.tmp"
        temporary.write_text(json.dumps(record))
        temporary.replace(directory / "process.json")

    def _signal(self, ids: Sequence[int], number: signal.Signals) -> list[psutil.Process]:
        named = self._named(ids)
        processes = []
        with self._locked():
            for node in named:
                process = self.process(node)
                if process is None:
                    raise CommandError(f"node {node.id} is not running")
                process.send_signal(number)
                processes.append(process)
        return processes

    def _stop_in_order(self, nodes: Sequence[NodeSpec]) -> None:
        """Brokers first: a stopping one has controllers move its leaderships."""
        self._stop([node for node in nodes if node.broker])
        self._stop([node for node in nodes if not node.broker])

    def _stop(self, nodes: Iterable[NodeSpec]) -> None:
        stopping: list[tuple[NodeSpec, psutil.Process]] = []
        for node in nodes:
            process = self.process(node)
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)  # a paused one would not hear of it
                stopping.append((node, process))
        late = []
        for node, process in stopping:
            try:
                _wait_ended(process, STOP_TIMEOUT_S)
            except psutil.TimeoutExpired:
                late.append(node.id)
            else:
                self._record_process(self.node_directory(node), process.pid, stopped=True)
        if late:
            raise CommandError(
                f"nodes {late} are still shutting down after {STOP_TIMEOUT_S:.0f} s "
                "(`pykraft cluster kill` ends them at once)"
            )

    def _describe(self, node: NodeSpec) -> dict[str, Any]:
        directory = self.node_directory(node)
        process = self.process(node)
        paused = process is not None and process.status() == psutil.STATUS_STOPPED
        readiness = launcher.read_readiness(node.metrics) if process and not paused else {}
        running = "paused" if paused else readiness.get("state", "starting")
        return {
            "id": node.id,
            "roles": list(node.roles),
            "pid": process.pid if process else None,
            "state": running if process else self._down_state(node),
            "kafka": node.kafka,
            "controller": node.controller,
            "admin": node.admin,
            "metrics": node.metrics,
            "data": str(directory / "data"),
            "log": str(directory / "node.log"),
            "active": bool(readiness.get("active_controller", False)),
        }

    def _down_state(self, node: NodeSpec) -> str:
        try:
            record = json.loads((self.node_directory(node) / "process.json").read_text())
        except FileNotFoundError:
            return "stopped"
        return "stopped" if record["stopped"] else "dead"


def _wait_ended(process: psutil.Process, timeout_s: float) -> None:
    """Returns when the process has ended, whether or not its parent has taken note of it yet.

    Raises psutil.TimeoutExpired.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        # Gone already, or a system without such handles.
        process.wait(timeout_s)
        return
    try:
        ended, _, _ = select.select([handle], [], [], timeout_s)
    finally:
        os.close(handle)
    if not ended:
        raise psutil.TimeoutExpired(timeout_s, process.pid)


def _check_shape(controllers: int, brokers: int) -> None:
    for name, count in (("--controllers", controllers), ("--brokers", brokers)):
        if not 0 <= count <= NODES_MAX:
            raise CommandError(f"{name} {count}: 0 to {NODES_MAX} are allowed")
    if brokers == 0:
        raise CommandError("--brokers 0: at least 1 is needed, clients talk to brokers")


def plan(controllers: int, brokers: int, base_port: int | None) -> list[NodeSpec]:
    """The nodes and their ports: from `base_port` on in this order, or free ones."""
    combined = controllers == 0
    needed = brokers * (4 if combined else 2) + controllers * 3
    if base_port is None:
        ports = iter(free_ports(needed))
    elif not 1024 <= base_port <= 65535 - needed:
        raise CommandError(f"--base-port {base_port}: 1024 to {65535 - needed} for {needed} ports")
    else:
        ports = iter(range(base_port, base_port + needed))

    def address() -> str:
        return f"{HOST}:{next(ports)}"

    nodes = []
    for id_ in range(1, brokers + 1):
        roles = ("broker", "controller") if combined else ("broker",)
        nodes.append(
            NodeSpec(
                id_,
                roles,
                broker=address(),
                controller=address() if combined else None,
                admin=address() if combined else None,
                metrics=address(),
            )
        )
    for id_ in range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers):
        nodes.append(
            NodeSpec(
                id_,
                ("controller",),
                broker=None,
                controller=address(),
                admin=address(),
                metrics=address(),
            )
        )
    return nodes


def default_directory() -> Path:
    """`$PYKRAFT_HOME`, or `.pykraft` here."""
    return Path(os.environ.get("PYKRAFT_HOME", ".pykraft"))
