"""Controllers of a dynamic quorum as processes: formatted, started, always ended by pid."""

import contextlib
import json
import re
import subprocess
import sys
import time

from admin.client import AdminClient
from pykraft.ports import free_ports
from raft.voter_records import control_batch, encode_membership, records_in
from wire.batch import iter_headers

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TIMES = {
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1500,
    "controller.quorum.election.backoff.max.ms": 200,
}


def ours(arguments):
    """What our command line prints."""
    command = [sys.executable, "-m", "pykraft", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Node:
    """One process: its configuration, its directory, its life."""

    def __init__(self, path, node_id, properties):
        self.id = node_id
        self.data = path / f"data-{node_id}"
        self.log = path / f"{node_id}.log"
        self.process = None
        self.config = path / f"{node_id}.properties"
        values = {"node.id": node_id, "log.dirs": self.data, **properties}
        self.config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))

    def format(self, *options):
        ours(["storage", "format", "--config", self.config, "--cluster-id", CLUSTER_ID, *options])

    def start(self):
        self.launch([sys.executable, "-m", "pykraft", "server", str(self.config)])

    def launch(self, command):
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def kill(self):
        process, self.process = self.process, None
        process.kill()
        process.wait(120)

    def stop(self):
        process, self.process = self.process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(120)

    @property
    def directory(self):
        """Its metadata directory's id."""
        meta = (self.data / "meta.properties").read_bytes()
        return re.search(rb"directory\.id=(\S+)", meta)[1].decode().replace("\\", "")


class Controller(Node):
    """`address` of its controller listener, `admin` of its gRPC door."""

    def __init__(self, path, node_id, ports, bootstrap, **more):
        self.address, self.admin, metrics = (f"127.0.0.1:{port}" for port in ports)
        super().__init__(
            path,
            node_id,
            {
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{self.address}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
                "controller.quorum.bootstrap.servers": ",".join(bootstrap),
                "pykraft.admin.listener": self.admin,
                "pykraft.metrics.listener": metrics,
                **TIMES,
                **more,
            },
        )


@contextlib.contextmanager
def controllers(path, count, *, kind=Controller, **more):
    """`count` of them, with ids from 1; nothing is formatted nor started. A failure shows the ends
    of their logs."""
    ports = free_ports(3 * count)
    places = [ports[3 * i : 3 * i + 3] for i in range(count)]
    bootstrap = [f"127.0.0.1:{place[0]}" for place in places]
    made = [kind(path, i + 1, places[i], bootstrap, **more) for i in range(count)]
    try:
        yield made
    except BaseException:
        for one in made:
            if one.log.exists():
                print(f"--- {one.id}\n" + one.log.read_text(errors="replace")[-3000:])
        raise
    finally:
        for one in made:
            one.stop()


def picture(door):
    """(leader, voters, observers), each replica as (id, directory), as our command shows them."""
    told = json.loads(ours(["quorum", "describe", "--json", "--admin", door.admin]))

    def replicas(name):
        return sorted((one["id"], one["directory"]) for one in told[name])

    return told["leader"], replicas("voters"), replicas("observers")


def remove_itself_and_crash(leader, other):
    """Of a set of two the leader is killed, and has as its last record a set without itself, which
    the other lacks: as if that had stood still, but for its word that it follows."""
    with AdminClient([leader.admin], timeout_ms=20_000) as admin:
        assert admin.describe_quorum()["leader"] == leader.id
    leader.kill()
    path = max((leader.data / "__cluster_metadata-0").glob("*.log"))
    data = path.read_bytes()
    batches = list(iter_headers(data))
    voters = [one.voters for at, header in batches for one in records_in(data, at, header)][-1]
    assert voters.ids == tuple(sorted((leader.id, other.id)))
    left = voters.without(voters.key_of(leader.id))
    position, last = batches[-1]
    wall_ms = time.time_ns() // 1_000_000
    batch = control_batch(
        encode_membership(None, left), last.next_offset, last.leader_epoch, wall_ms
    )
    with path.open("r+b") as file:
        file.seek(position + last.length)
        file.write(batch)


def replicas_of(nodes):
    """What `picture` shows of these."""
    return sorted((node.id, node.directory) for node in nodes)
