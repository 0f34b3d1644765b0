RULE = "a voter gives its vote to anybody who asks, though it has voted in that epoch"
SEEDS_MAX = 20


def install(replace):
    from raft import elections
    from raft.state import Quorum

    real = Quorum.become_unattached

    def become_unattached(self, epoch, *, voted=None, election_at_ms=None):
        if voted is not None and epoch == self.epoch:
            self.voted = None
        real(self, epoch, voted=voted, election_at_ms=election_at_ms)

    def grants_vote(q, request):
        return not type(q.role).__name__.startswith(("Cand", "Lead", "Foll", "Resig")) and (
            elections._is_up_to_date(q, request)
        )

    replace(Quorum, "become_unattached", become_unattached)
    replace(elections, "_grants_vote", grants_vote)
