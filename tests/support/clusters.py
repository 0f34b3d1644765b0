"""A local cluster of real node processes for a test: made in a folder, always ended by pid."""

import json
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from waiting import wait_until

from admin.client import AdminClient
from pykraft.local_cluster import LocalCluster, plan

COMMAND_TIMEOUT_S = 300
LOG_LINES = 25

# The clusters that run now: a failing test shows the ends of their nodes' logs.
_running = []


class Cluster:
    """One cluster. `up` and `start` go through the command line, as a user's would."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.local = LocalCluster(self.directory)

    def pykraft(self, *arguments, code=0, timeout_s=COMMAND_TIMEOUT_S):
        """Runs a `pykraft` command; returns what it printed. Asserts its exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "pykraft", *map(str, arguments), "--dir", str(self.directory)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == code, f"{arguments} exited {done.returncode}: {done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def json(self, *arguments):
        """The document that a command prints with --json."""
        return json.loads(self.pykraft(*arguments, "--json"))

    def up(self, controllers, brokers):
        return self.json("cluster", "up", "--controllers", controllers, "--brokers", brokers)

    def start(self, *ids):
        self.pykraft("cluster", "start", *ids)

    def kill(self, *ids):
        """SIGKILL; returns when the processes are gone."""
        self.local.kill(ids)

    def stop(self, *ids):
        """A controlled shutdown; returns when the processes have ended."""
        self.local.stop(ids)

    def down(self):
        self.local.down()

    @property
    def bootstrap(self):
        return ",".join(node.broker for node in self.local.nodes() if node.broker)

    def admin(self, timeout_s=30.0):
        """A client of the gRPC door, for a `with`."""
        return AdminClient(self.local.admin_addresses(), timeout_ms=int(timeout_s * 1000))

    def node(self, id_):
        return next(node for node in self.local.nodes() if node.id == id_)

    def ids(self, role=None):
        return [node.id for node in self.local.nodes() if role is None or role in node.roles]

    def data(self, id_):
        return self.local.node_directory(self.node(id_)) / "data"

    def log(self, id_):
        return self.local.node_directory(self.node(id_)) / "node.log"

    def log_entries(self, id_):
        """The node's log, every line decoded; what is no whole line yet is left out."""
        lines = self.log(id_).read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def process(self, id_):
        """The node's process, None where none lives."""
        return self.local.process(self.node(id_))

    def active_controller(self, timeout_s=20.0):
        """The id of the active controller, once every live controller agrees that there is one."""
        return wait_until(
            lambda: self.local.status()["active_controller"], "an active controller", timeout_s
        )

    def end(self):
        """Ends every process, SIGTERM first, then SIGKILL; nothing survives this call."""
        if not self.local.exists():
            return
        # Brokers first: their controlled shutdown needs controllers.
        brokers = self.ids("broker")
        rest = [id_ for id_ in self.ids() if id_ not in brokers]
        survivors = []
        for ids in (brokers, rest):
            processes = [p for p in map(self.process, ids) if p is not None]
            for ask in ("terminate", "kill"):
                for process in processes:
                    with suppress(psutil.NoSuchProcess):
                        getattr(process, ask)()
                _, processes = psutil.wait_procs(processes, timeout=8)
            survivors += processes
        assert not survivors, f"processes that survive SIGKILL: {survivors}"

    def log_tails(self):
        """The ends of all nodes' logs, for the report of a failure."""
        parts = []
        for id_ in self.ids() if self.local.exists() else []:
            log = self.log(id_)
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            state = "running" if self.process(id_) else "not running"
            parts.append(f"--- node {id_} ({state}), {log}")
            parts += [line[:2000] for line in lines[-LOG_LINES:]]
        return "\n".join(parts)


@contextmanager
def running_cluster(directory, controllers, brokers, settings=None):
    """A cluster that is up; ended on leaving. `settings` are added to every node's properties."""
    cluster = Cluster(directory)
    with ended_afterwards(cluster):
        if settings:
            nodes = plan(controllers, brokers, None)
            texts = {name: str(value) for name, value in settings.items()}
            cluster.local.create(nodes, {node.id: texts for node in nodes})
        cluster.up(controllers, brokers)
        yield cluster


@contextmanager
def ended_afterwards(cluster):
    """Ends the cluster on leaving; until then a failing test shows its logs."""
    _running.append(cluster)
    try:
        yield
    finally:
        try:
            cluster.end()
        finally:
            _running.remove(cluster)


@contextmanager
def pykraft_server(config, exit_code=0):
    """`pykraft server CONFIG` in the foreground of its own process, ready; stopped on leaving,
    when it must end with `exit_code`."""
    log = Path(config).with_suffix(".pykraft.log")
    with log.open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "pykraft", "server", str(config)],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )

    def ready():
        said = log.read_bytes()[begin:].decode(errors="replace")
        assert process.poll() is None, f"the node ended:\n{said[-4000:]}"
        return "pykraft: ready" in said

    try:
        wait_until(ready, f"{config} is ready: see {log}", 30)
        yield process
        process.terminate()
        assert process.wait(120) == exit_code, log.read_text(errors="replace")[-4000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(120)


def log_tails():
    """The ends of the logs of every cluster that runs now."""
    return "\n".join(cluster.log_tails() for cluster in _running)
