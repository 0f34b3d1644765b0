RULE = "the metadata log counts as durable when it is written"
CAUGHT_BY = (
    "committed is durable on a majority",
    "what counts as durable is on the disk",
)
SEEDS_MAX = 2


def install(replace):
    from raft.metadata_log import MetadataLog

    async def sync(self):
        return self.log.end_offset

    replace(MetadataLog, "sync", sync)
