RULE = "no change of the voters before the leader has committed in its epoch"
SEEDS_MAX = 100


def install(replace):
    from raft import voter_changes

    def not_yet(q, role):
        return None

    replace(voter_changes, "_not_yet", not_yet)
    replace(voter_changes, "_uncommitted", lambda q: None)
