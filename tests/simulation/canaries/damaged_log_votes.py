RULE = "a voter that lost durable records votes as if it hadn't"
SEEDS_MAX = 200


def install(replace):
    from raft.core import QuorumCore

    real = QuorumCore.__init__

    def init(self, *, needs_end=None, **rest):
        real(self, needs_end=None, **rest)

    replace(QuorumCore, "__init__", init)
