RULE = "a voter whose log is gone believes a leader that was deposed by its own vote"
SEEDS_FROM = 1_250  # one in four hundred tells it
SEEDS_MAX = 2_300


def install(replace):
    from raft import following
    from raft.log_view import UNKNOWN_END

    def look(q, slot, high_watermark):
        end = slot.leader_end
        if q.needs_end == UNKNOWN_END and end is not None and q.log.end >= end:
            q.needs_end = end
            q.heal()

    replace(following, "_look_whether_enough", look)
