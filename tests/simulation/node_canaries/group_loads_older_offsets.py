RULE = "a coordinator that loads keeps the first offset that it reads of a partition"
CAUGHT_BY = ("an acknowledged commit is neither lost nor goes back",)
SEEDS_MAX = 4


def install(replace):
    from broker.groups.offset_store import OffsetStore

    real = OffsetStore.put

    def put(self, key, value, producer, *, live):
        if live or self.get(key) is None:
            real(self, key, value, producer, live=live)

    replace(OffsetStore, "put", put)
