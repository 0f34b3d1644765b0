RULE = "votes and epochs are spoken of before they are durable"
SEEDS_MAX = 5


def install(replace):
    from raft.core import QuorumCore
    from raft.effects import PersistQuorumState

    real = QuorumCore.handle

    def handle(self, event, now_ms):
        effects = real(self, event, now_ms)
        return sorted(effects, key=lambda effect: isinstance(effect, PersistQuorumState))

    replace(QuorumCore, "handle", handle)
