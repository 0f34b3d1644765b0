RULE = "a controller that thinks it is active answers linearizable reads without asking anybody"
CAUGHT_BY = ("admin calls are linearizable",)
SEEDS_MAX = 30


def install(replace):
    from raft.node import NotLeader, RaftNode

    async def confirm_leadership(self):
        if not self.is_leader:
            raise NotLeader("not the leader")
        return self.high_watermark

    replace(RaftNode, "confirm_leadership", confirm_leadership)
