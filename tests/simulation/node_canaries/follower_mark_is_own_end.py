RULE = "a follower takes all that it has for committed, whatever its leader says"
CAUGHT_BY = (
    "a replica's high watermark never goes back",
    "a leader has all that was committed",
    "committed never changes",
)
SEEDS_MAX = 30


def install(replace):
    from broker import partition
    from broker.partition import PartitionCore
    from broker.partition_events import LeaderHighWatermark

    real = PartitionCore._leader_high_watermark

    def told(self, event, now_ms):
        return real(self, event._replace(high_watermark=self.log_end), now_ms)

    handlers = {**partition._HANDLERS, LeaderHighWatermark: told}
    replace(partition, "_HANDLERS", handlers)
