RULE = "a read is confirmed by a fetch that may have been sent before it"
SEEDS_MAX = 5_000
SEEDS_FROM = 400  # a rare one: one seed in two thousand or so tells it


def install(replace):
    from raft import leading, serving

    heard_from = leading.heard_from

    def heard_from_and_confirm(q, role, key):
        heard_from(q, role, key)
        if q.voters.contains(key):
            for read in role.reads:
                read.roll_call.confirmed[key.node_id] = None
            leading.finish_reads(q, role)

    replace(serving, "heard_from", heard_from_and_confirm)
