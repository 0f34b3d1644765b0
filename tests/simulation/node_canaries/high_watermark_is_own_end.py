RULE = "a leader commits what it has, whatever its followers have"
CAUGHT_BY = ("committed is in the log of every replica in sync",)
SEEDS_MAX = 2


def install(replace):
    from broker.partition import PartitionCore
    from broker.partition_events import HighWatermarkMoved

    def raise_mark(self, now_ms, effects):
        if self.log_end > self.high_watermark:
            self.high_watermark = self.log_end
            effects.append(HighWatermarkMoved(self.log_end))

    replace(PartitionCore, "_raise_high_watermark", raise_mark)
