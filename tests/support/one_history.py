"""What must be on the disks of a cluster that was stopped, whatever happened to it before."""

from spark_audit.session import in_process
from spark_audit.verify import verify


def assert_metadata_agrees(cluster):
    """The controllers' metadata logs are sound and of one history."""
    document = verify([str(cluster.data(id_)) for id_ in cluster.ids("controller")], in_process)
    found = [
        finding
        for entry in document["directories"]
        for finding in entry["findings"]
        if finding["level"] == "error"
    ]
    assert document["sound"], f"the metadata logs are not sound: {found[:3]}"
    diverged = [pair for pair in document["between"] if pair["diverged"]]
    assert not diverged, f"the metadata logs fork: {diverged[:3]}"


def assert_replicas_agree(cluster, topics):
    """All replicas of the topics have the same bytes. Returns how many partitions were compared.

    Only where every replica was in sync and nobody wrote when the cluster was stopped.
    """
    found = {}
    for broker in cluster.ids("broker"):
        for topic in topics:
            for directory in cluster.data(broker).glob(f"{topic}-[0-9]"):
                data = b"".join(log.read_bytes() for log in sorted(directory.glob("*.log")))
                found.setdefault(directory.name, {})[broker] = data
    for name, replicas in found.items():
        sizes = {broker: len(data) for broker, data in replicas.items()}
        assert len(set(replicas.values())) == 1, f"the replicas of {name} differ, sizes {sizes}"
    return len(found)
