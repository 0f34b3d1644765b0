RULE = "a voter set counts from its record on, not from its commit on"
SEEDS_MAX = 100


def install(replace):
    from raft.state import Quorum
    from raft.voter_history import VoterHistory

    real = Quorum.adopt_voters

    def adopt(self):
        # As if the log ended where it is known to be committed.
        latest = VoterHistory.voters
        VoterHistory.voters = property(lambda h: h.voters_before(self.high_watermark))
        try:
            real(self)
        finally:
            VoterHistory.voters = latest

    replace(Quorum, "adopt_voters", adopt)
