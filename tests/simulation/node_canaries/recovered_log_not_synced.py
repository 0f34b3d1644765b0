RULE = "what a start finds in the metadata log counts as durable without a sync"
CAUGHT_BY = (
    "what counts as durable is on the disk",
    "committed is durable on a majority",
    "a leader has all that was committed",
)
SEEDS_MAX = 20


def install(replace):
    from raft.metadata_log import MetadataLog
    from storage.log import Log

    opening = []
    real_open, real_flush = MetadataLog.open, Log.flush

    async def unsafe_open(self, voters):
        opening.append(self)
        try:
            opened = await real_open(self, voters)
        finally:
            opening.remove(self)
        # What comes later syncs only what it wrote itself.
        for segment in self.log.segments.values():
            segment.synced_changes = segment.changes
        return opened

    async def flush(self, upto=None):
        if any(getattr(log, "log", None) is self for log in opening):
            return self.end_offset
        return await real_flush(self, upto)

    replace(MetadataLog, "open", unsafe_open)
    replace(Log, "flush", flush)
