RULE = "a voter votes though nothing tells how much of its log is gone"
SEEDS_MAX = 400


def install(replace):
    from raft import elections
    from raft.log_view import UNKNOWN_END

    real = elections._grants_vote

    def grants(q, request):
        needs_end = q.needs_end
        if needs_end == UNKNOWN_END:
            q.needs_end = None
        try:
            return real(q, request)
        finally:
            q.needs_end = needs_end

    replace(elections, "_grants_vote", grants)
