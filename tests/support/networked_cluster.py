"""A cluster of real processes on a network that a test can spoil (see networks.py)."""

from contextlib import ExitStack, contextmanager, suppress

import psutil
from clusters import Cluster, ended_afterwards
from networks import make_network
from waiting import wait_until

from pykraft.launcher import read_readiness
from pykraft.local_cluster import LocalCluster
from wire import properties
from wire.errors import KafkaError


class _Local(LocalCluster):
    """Each node is started in its place on the network."""

    def __init__(self, directory, network):
        super().__init__(directory)
        self._network = network

    def _launch(self, node):
        with self._network.place(node.id):
            return super()._launch(node)


class NetworkedCluster(Cluster):
    """`network` is spoiled and healed by the test. Nodes are started from here, not by commands."""

    def __init__(self, directory, network, settings):
        super().__init__(directory)
        self.network = network
        self.local = _Local(self.directory, network)
        self.local.create(network.nodes)
        for node in network.nodes:
            path = self.local.node_directory(node) / "server.properties"
            values = properties.parse(path.read_text()) | settings | network.own_settings(node)
            path.write_text(properties.dump(values))

    def start(self, *ids):
        self.local.start(ids)

    @property
    def controllers(self):
        return self.ids("controller")

    @property
    def brokers(self):
        return self.ids("broker")

    def addresses(self, role):
        """(host, port) of the role's Kafka listeners, by node id."""
        found = {}
        for node in self.local.nodes():
            if role in node.roles:
                host, _, port = getattr(node, role).rpartition(":")
                found[node.id] = (host, int(port))
        return found

    def claims_to_be_active(self, id_):
        """Whether a controller says that it is the active one; None where it says nothing."""
        return read_readiness(self.node(id_).metrics, 0.5).get("active_controller")

    def active_among(self, ids, timeout_s=20.0):
        """The one of the controllers `ids` that says it is active, once one does."""

        def claimed():
            return next((id_ for id_ in ids if self.claims_to_be_active(id_)), None)

        return wait_until(claimed, f"one of {ids} is active", timeout_s)

    def quorum(self, timeout_s=10.0):
        """The quorum as its leader describes it."""
        with self.admin(timeout_s) as admin:
            return admin.describe_quorum()

    def partitions(self, topic, timeout_s=10.0):
        """The topic's partitions by number, as committed."""
        with self.admin(timeout_s) as admin:
            found = admin.describe_topics([topic], linearizable=True)[topic]["partitions"]
        return {int(number): partition for number, partition in found.items()}

    def heal(self):
        """Links are clear, stopped processes go on, killed ones are started."""
        self.network.heal()
        self.resume()
        if dead := [id_ for id_ in self.ids() if self.process(id_) is None]:
            self.start(*dead)

    def wait_until_whole(self, topics, timeout_s=40.0):
        """Until all follow one active controller and every replica of `topics` is in sync."""
        wait_until(lambda: not self._missing(topics), "the cluster is whole", timeout_s, 0.1)

    def _missing(self, topics):
        try:
            quorum = self.quorum()
            replicas = quorum["voters"] + quorum["observers"]
            behind = [one for one in replicas if one["end_offset"] < quorum["high_watermark"]]
            if len(replicas) != len(self.ids()) or behind:
                return f"behind: {behind}"
            for topic in topics:
                for number, one in self.partitions(topic).items():
                    if one["leader"] < 0 or len(one["isr"]) != len(one["replicas"]):
                        return f"{topic}-{number}: {one}"
        except KafkaError as error:
            return str(error)
        return None

    def resume(self):
        """Stopped processes go on."""
        for process in filter(None, map(self.process, self.ids())):
            with suppress(psutil.NoSuchProcess):
                process.resume()


@contextmanager
def networked_cluster(directory, controllers=3, brokers=3, settings=None, seed=0):
    """A cluster on its network, all nodes ready; both are gone on leaving, whatever happens."""
    with ExitStack() as after:
        network = make_network(directory, controllers, brokers, seed)
        after.callback(network.close)
        cluster = NetworkedCluster(directory, network, settings or {})
        after.enter_context(ended_afterwards(cluster))
        # What is asked to end must hear of it, and brokers want to tell their controllers.
        after.callback(cluster.resume)
        after.callback(network.heal)
        cluster.start(*cluster.ids())
        yield cluster
