RULE = "a leader that removes itself doesn't count towards the majority of the new set"
SEEDS_MAX = 200


def install(replace):
    from raft import leading
    from raft.quorum import replicated_offset

    real = leading.replicated_offset
    assert real is replicated_offset

    def commit(q, role):
        def with_us(ends):
            ends = list(ends)
            return real(ends if q.is_voter else [q.log.synced_end, *ends[1:]])

        leading.replicated_offset = with_us
        try:
            real_commit(q, role)
        finally:
            leading.replicated_offset = real

    real_commit = leading.commit
    replace(leading, "commit", commit)
