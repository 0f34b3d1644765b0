RULE = "a vote is given before it is on the disk"
CAUGHT_BY = ("votes are durable before they count",)
SEEDS_MAX = 2


def install(replace):
    from world.memory import MemoryDisk

    real = MemoryDisk.replace

    async def unsafe(self, path, data):
        if not path.endswith("quorum-state"):
            await real(self, path, data)
            return
        file = self.open(path + ".tmp", create=True)
        file.truncate(0)
        file.append([data])
        file.close()
        self.rename(path + ".tmp", path)

    replace(MemoryDisk, "replace", unsafe)
