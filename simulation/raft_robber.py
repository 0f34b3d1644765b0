"""Who takes a simulated voter's whole log, quorum-state included; its node keeps its identity.

Where it hurts most: while a leader of the past still leads, a voter that has voted for a later one
loses all that it knew, and meets only the former when it is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.raft_core import RaftWorld
    from simulation.raft_node import SimulatedMember

_LOOK_EVERY_MS = 15


class Robber:
    """Robs whom it is told to, and lies in wait where the seed has drawn that."""

    def __init__(self, world: RaftWorld) -> None:
        self.world = world

    def rob(self, member: SimulatedMember) -> None:
        """Take all from a member that is down."""
        member.disk.rob()
        self.world.checks.forget_votes(member.key)
        self.world.counts["robberies"] += 1
        self.world.note(f"{member.node_id} is robbed")

    def lie_in_wait(self) -> None:
        """Look now and then whether two lead, of different epochs."""
        world = self.world
        if world.calm:
            return
        world.at(world.now_ms + _LOOK_EVERY_MS, self.lie_in_wait)
        epochs = {
            member.node_id: member.core.state.epoch
            for member in world.members.values()
            if member.core is not None
        }
        leaders = [i for i in epochs if world.members[i].is_leader]
        if len(leaders) < 2 or world.chance.random() < 0.5:
            return
        past = min(leaders, key=epochs.__getitem__)
        victims = [
            world.members[i]
            for i in epochs
            if i not in leaders and epochs[i] > epochs[past] and world.can_vote(world.members[i])
        ]
        if victims and world.operator.bears_one_more():
            self._rob_and_mislead(world.chance.choice(victims), past)

    def _rob_and_mislead(self, victim: SimulatedMember, past: int) -> None:
        world = self.world
        world.kill(victim, power=True)
        self.rob(victim)
        world.boot(victim)
        until_ms = world.now_ms + world.chance.randint(50, 600)
        for other in world.members:
            for source, target in ((victim.node_id, other), (other, victim.node_id)):
                if other == past:
                    world.mend(source, target)
                elif source != target:
                    world.cut(source, target, until_ms)
