RULE = "whatever ends the metadata log at start is cut as a torn tail"
CAUGHT_BY = (
    "damage below the synced offset is noticed",
    "a damaged voter takes no part until it is whole",
    "committed is durable on a majority",
)
SEEDS_MAX = 20


def install(replace):
    from raft import metadata_log

    class SaysNothing(metadata_log.SyncedOffset):
        def __init__(self, disk, directory):
            super().__init__(disk, directory)
            self.offset = 0

    replace(metadata_log, "SyncedOffset", SaysNothing)
