"""A Kafka cluster for the tests of any project: real nodes, up in about a second, gone afterwards.

    from pykraft.testing import Cluster

    with Cluster(brokers=3, controllers=3) as cluster:
        print(cluster.bootstrap_servers)

With pytest nothing needs importing: the fixture `kafka` is there (see `pykraft.testing.plugin`).
docs/testing-with-pykraft.md tells how both are used.
"""

from pykraft.testing.cluster import Cluster, Node
from pykraft.testing.link import ClusterError
from pykraft.testing.shape import Shape

__all__ = ["Cluster", "ClusterError", "Node", "Shape"]
