RULE = "a voter whose log was damaged takes part as if it were whole"
CAUGHT_BY = (
    "votes are durable before they count",
    "a damaged voter takes no part until it is whole",
    "a leader has all that was committed",
    "committed is durable on a majority",
    "committed never changes",
)
SEEDS_MAX = 30


def install(replace):
    from raft.metadata_log import MetadataLog

    real = MetadataLog.open

    async def unsafe_open(self, *known):
        opened = await real(self, *known)
        opened.needs_end = None
        return opened

    replace(MetadataLog, "open", unsafe_open)
