RULE = "a snapshot gets its name before its bytes are on the disk"
CAUGHT_BY = ("a snapshot stands for what the log leaves out",)
SEEDS_MAX = 5


def install(replace):
    from raft.snapshots import SnapshotStore, examine

    async def freeze(self, part, snapshot):
        facts = await self._env.run_blocking(examine, part, snapshot)
        part.close()
        self._disk.rename(part.path, self.path(snapshot))
        self.complete[snapshot] = facts
        self.complete = dict(sorted(self.complete.items()))
        return facts

    replace(SnapshotStore, "freeze", freeze)
