RULE = "a snapshot gets its name before its bytes are on the disk"
CAUGHT_BY = ("a snapshot stands for what the log leaves out",)
SEEDS_MAX = 5


class _Unsynced:
    """A file whose sync does nothing."""

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    async def sync(self):
        pass


def install(replace):
    from raft.snapshots import SnapshotStore

    new_part = SnapshotStore.new_part

    def unsynced_part(self, snapshot, mark):
        return _Unsynced(new_part(self, snapshot, mark))

    replace(SnapshotStore, "new_part", unsynced_part)
