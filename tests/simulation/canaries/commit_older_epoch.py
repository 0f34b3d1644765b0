RULE = "a leader commits an older epoch's records by counting replicas (Raft paper, figure 8)"
SEEDS_MAX = 400


def install(replace):
    from raft import leading

    real = leading.commit

    def commit(q, role):
        kept, role.epoch_start = role.epoch_start, -1
        real(q, role)
        role.epoch_start = kept

    replace(leading, "commit", commit)
    from raft import serving

    replace(serving, "commit", commit)
