RULE = "a leader steps down after a while, though a majority fetches from it"
CAUGHT_BY = ("a leader with a majority stays",)
SEEDS_MAX = 5


def install(replace):
    from raft import serving
    from raft.state import QuorumConfig

    replace(serving, "heard_from", lambda q, role, key: None)
    replace(QuorumConfig, "check_quorum_ms", 5_000)
