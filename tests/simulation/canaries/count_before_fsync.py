RULE = "appended records count as replicated before they are durable"
SEEDS_MAX = 5


def install(replace):
    from raft.log_view import LogView

    real = LogView.append

    def append(self, epoch, base_offset, end_offset):
        real(self, epoch, base_offset, end_offset)
        self.synced_end = self.end

    replace(LogView, "append", append)
