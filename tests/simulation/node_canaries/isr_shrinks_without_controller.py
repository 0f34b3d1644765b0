RULE = "a leader takes a slow replica out of the ISR without asking the controller"
CAUGHT_BY = (
    "nothing is committed under min.insync.replicas",
    "committed never changes",
    "committed is in the log of every replica in sync",
    "a leader has all that was committed",
    "acknowledged records are kept",
    "a consumer's position never leaves the log",
    "what a consumer saw stays",
    "an idempotent producer's sequence is never lost",
    "the newest value of a key is kept",
    "an acknowledged record is where it was said to be",
    "an acknowledged commit is neither lost nor goes back",
    "one owner of a partition in a generation",
    "a committed offset covers only what was consumed",
)
SEEDS_MAX = 15


def install(replace):
    from broker.partition import PartitionCore

    real = PartitionCore._tick

    def tick(self, event, now_ms):
        if self.is_leader and self.pending is None:
            self.isr = tuple(
                r
                for r in self.isr
                if r == self.broker_id
                or self.remotes[r].in_sync(self.log_end, now_ms, self.lag_max_ms)
            )
            self.min_isr = 1
        return real(self, event, now_ms)

    replace(PartitionCore, "_tick", tick)
    from broker import partition

    handlers = {**partition._HANDLERS, partition.Tick: tick}
    replace(partition, "_HANDLERS", handlers)
