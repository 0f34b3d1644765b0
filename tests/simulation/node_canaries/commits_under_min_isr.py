RULE = "a leader raises the high watermark with fewer in sync than min.insync.replicas"
CAUGHT_BY = ("nothing is committed under min.insync.replicas",)
SEEDS_MAX = 5


def install(replace):
    from broker.partition import PartitionCore

    replace(PartitionCore, "under_min_isr", False)
