RULE = "a voter whose log is gone takes part again with whatever it has fetched first"
SEEDS_FROM = 950
SEEDS_MAX = 1_400


def install(replace):
    from raft import following
    from raft.log_view import UNKNOWN_END

    def look(q, slot, high_watermark):
        if q.needs_end == UNKNOWN_END:
            q.needs_end = q.log.end
            q.heal()

    replace(following, "_look_whether_enough", look)
