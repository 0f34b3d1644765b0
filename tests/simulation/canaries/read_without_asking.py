RULE = "a linearizable read is answered by a leader that hasn't asked anybody"
SEEDS_MAX = 300


def install(replace):
    from raft import leading
    from raft.effects import LeadershipConfirmed, LeadershipRefused
    from raft.roles import Leader

    def confirm(q, event):
        if isinstance(q.role, Leader) and q.role.committed_in_epoch:
            q.emit(LeadershipConfirmed(event.token, q.high_watermark))
        else:
            q.emit(LeadershipRefused(event.token))

    replace(leading, "confirm", confirm)
