"""A network between the nodes of a cluster on this machine, whose every link a test can spoil.

Two kinds, chosen by what the machine allows: `Wires` gives each node a network namespace, joined by
a switch (network_switch.py); `Proxies` puts a TCP proxy before each listener (network_proxy.py).
Links are one way and between machines, which are numbered by their node ids; the clients and the
test itself are the machine CLIENTS. `PYKRAFT_TEST_NETWORK=proxies` takes the second kind anyhow.
"""

import json
import os
import random
import select
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import namespaces
from network_links import CLEAR, CUT, Link, told

from pykraft.local_cluster import HOST, plan
from pykraft.ports import free_ports

__all__ = ["CLEAR", "CLIENTS", "CUT", "Link", "Proxies", "Wires", "make_network"]

CLIENTS = 200
ANSWER_S = 20.0
# RFC 2544: for tests of networks, and nobody else's.
_SUBNETS = [f"198.{second}.{third}" for second in (18, 19) for third in range(256)]
_HERE = Path(__file__).resolve().parent


def make_network(directory, controllers=3, brokers=3, seed=0):
    """The network of a cluster that will be in `directory`, the better kind that there is."""
    wanted = os.environ.get("PYKRAFT_TEST_NETWORK", "")
    kind = Proxies if wanted == "proxies" or namespaces.why_not() is not None else Wires
    return kind(directory, controllers, brokers, seed)


class _Network:
    """What both kinds share. `nodes` are the specs of its cluster's nodes; ended by `close`."""

    def __init__(self, command, *, pass_fds=()):
        self._links = {}
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=pass_fds,
        )

    @property
    def machines(self):
        """Every node's number, and the clients'."""
        return [node.id for node in self.nodes] + [CLIENTS]

    def shape(self, sources, targets, link, *, both=True):
        """Makes every link from one of `sources` to one of `targets`, and back, like `link`."""
        pairs = [(a, b) for a in sources for b in targets if a != b]
        if both:
            pairs += [(b, a) for a, b in pairs]
        self._tell(dict.fromkeys(pairs, link))

    def cut(self, sources, targets, *, both=True):
        """Nothing gets from `sources` to `targets` any more; `both`: nor back."""
        self.shape(sources, targets, CUT, both=both)

    def heal(self):
        """Every link is clear."""
        self._tell(dict.fromkeys(self._links, CLEAR))
        self._links.clear()

    def counts(self):
        """What was carried, lost and held back so far."""
        return self._ask(json.dumps({"counts": True}))

    def close(self):
        """Ends the process that carries, and with it the network."""
        self._process.stdin.close()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(120)
        self._process.stdout.close()

    def _tell(self, links):
        self._links.update(links)
        assert self._ask(told(links)) == "ok"

    def _ask(self, line):
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self):
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_S)
        assert ready, f"the network said nothing for {ANSWER_S:g} s"
        line = self._process.stdout.readline()
        assert line, f"the network ended: {self._process.wait(120)}"
        return json.loads(line)


class Wires(_Network):
    """Each node in a network namespace of its own, at the address of its number."""

    kind = "network namespaces"

    def __init__(self, directory, controllers, brokers, seed):
        subnet = _free_subnet(random.Random())
        self.nodes = [_on_wire(node, subnet) for node in plan(controllers, brokers, 20_000)]
        self._namespaces, devices = {}, {}
        with ExitStack() as after, ExitStack() as undo:
            for node in self.nodes:
                self._namespaces[node.id] = namespaces.new_namespace()
                undo.callback(os.close, self._namespaces[node.id])
            for machine in self.machines:
                with namespaces.inside(self._namespaces.get(machine)):
                    devices[machine] = namespaces.open_tun(f"{subnet}.{machine}")
                after.callback(os.close, devices[machine])
            words = [f"{machine}={device}" for machine, device in devices.items()]
            command = [_HERE / "network_switch.py", seed, *words]
            super().__init__(command, pass_fds=tuple(devices.values()))
            undo.pop_all()

    def place(self, id_):
        """A context in which a node's process is started."""
        return namespaces.inside(self._namespaces[id_])

    def close(self):
        try:
            super().close()
        finally:
            for namespace in self._namespaces.values():
                os.close(namespace)

    def own_settings(self, node):
        """What a node's properties need beyond its spec."""
        return {"pykraft.admin.allow.plaintext": "true"}


class Proxies(_Network):
    """Every node on the loopback device; others reach its Kafka listener, and its admin door,
    through the proxy."""

    kind = "proxies"

    def __init__(self, directory, controllers, brokers, seed):
        private = plan(controllers, brokers, None)
        taken = [spec.rpartition(":")[2] for node in private for spec in _doors(node).values()]
        free = free_ports(2 * len(private) + len(taken))
        public = iter([port for port in free if str(port) not in taken])
        self.nodes, self._own, words = [], {}, []
        for node in private:
            changes = {}
            for door, own in _doors(node).items():
                if door != "metrics":
                    port = next(public)
                    changes[door] = f"{HOST}:{port}"
                    words.append(f"{node.id}={port}={own.rpartition(':')[2]}")
            self.nodes.append(replace(node, **changes))
            self._own[node.id] = node
        super().__init__([_HERE / "network_proxy.py", seed, directory, CLIENTS, *words])
        assert self._answer() == "ok"

    @contextmanager
    def place(self, id_):
        yield

    def own_settings(self, node):
        """It listens where it is, and says where it is reached."""
        own = self._own[node.id]
        names = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}
        doors = [door for door in names if getattr(own, door)]
        settings = {
            "listeners": ",".join(f"{names[door]}://{getattr(own, door)}" for door in doors),
            "advertised.listeners": ",".join(
                f"{names[door]}://{getattr(node, door)}" for door in doors
            ),
        }
        if own.admin:
            settings["pykraft.admin.listener"] = own.admin
        return settings


def _free_subnet(chance):
    used = [address.rpartition(".")[0] for address in namespaces.addresses()]
    return chance.choice([subnet for subnet in _SUBNETS if subnet not in used])


def _doors(node):
    """The addresses that a node has, by what they are for."""
    found = {door: getattr(node, door) for door in ("broker", "controller", "admin", "metrics")}
    return {door: address for door, address in found.items() if address}


def _on_wire(node, subnet):
    """The node's spec at its own address: the port tells the door, the address the node."""
    ports = {"broker": 9092, "controller": 9093, "admin": 9094, "metrics": 9095}
    places = {door: f"{subnet}.{node.id}:{ports[door]}" for door in _doors(node)}
    return replace(node, **places)
