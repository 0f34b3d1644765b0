"""The seeded simulation of the quorum core: members, a network, faults, one virtual clock.

A run is a function of its seed. First comes a phase in which anything within the fault budget
may happen: messages delayed, lost, doubled and overtaken, links cut one way or both, members
killed with their unsynced writes lost, slow disks, pauses, damage, snapshots and trimmed logs,
voters added, removed and replaced (`raft_operator`). Which of these happen is drawn per seed. Then
everything heals, and the quorum must converge.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from uuid import UUID

from raft.effects import ProbeVoter
from raft.events import (
    ConfirmLeadership,
    Disconnected,
    Event,
    LeaderAppend,
    RequestAbandoned,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    ServeParked,
    Tick,
)
from raft.messages import BeginEpochRequest, Request, Response
from raft.state import QuorumConfig
from raft.voters import MembershipRecord, ReplicaKey, Voter, VoterSet
from simulation.raft_checks import RaftChecks, Violation
from simulation.raft_disk import RaftDisk
from simulation.raft_node import SimulatedMember
from simulation.raft_operator import OPERATOR_ID, Operator
from simulation.raft_robber import Robber

EVENTS_MIN = 1_000
CHAOS_EVENTS = 850
CHAOS_MAX_MS = 60_000
CONVERGE_MAX_MS = 20_000
REQUEST_TIMEOUT_MS = 400

CONFIG = QuorumConfig(
    election_timeout_ms=200,
    fetch_timeout_ms=400,
    election_backoff_max_ms=200,
    retry_backoff_ms=10,
    fetch_max_wait_ms=100,
    lost_leader_wait_max_ms=20,
    pre_vote_backoff_max_ms=80,
    observer_session_ms=5_000,
)


@dataclass(slots=True)
class Faults:
    """What may happen in a run, drawn from its seed. Rates are shares of 1."""

    lose: float = 0.0
    double: float = 0.0
    delay_max_ms: int = 3
    slow_disk: float = 0.0
    spoiled_download: float = 0.0
    kinds: tuple[str, ...] = ()
    every_ms: int = 300
    membership: bool = False
    robber: bool = False

    @classmethod
    def draw(cls, chance: random.Random) -> Faults:
        all_kinds = ("kill", "power", "cut", "isolate", "flap", "pause", "resign", "damage")
        kinds = tuple(kind for kind in all_kinds if chance.random() < 0.5)
        if not {"kill", "power"} & {*kinds}:
            kinds += (chance.choice(("kill", "power")),)
        robber = chance.random() < 0.3
        if robber:  # it takes two leaders
            kinds += ("isolate", "flap") * 3
        return cls(
            lose=chance.choice((0.0, 0.0, 0.02, 0.1)),
            double=chance.choice((0.0, 0.0, 0.05)),
            delay_max_ms=chance.choice((2, 5, 30)),
            slow_disk=chance.choice((0.0, 0.05, 0.2)),
            spoiled_download=chance.choice((0.0, 0.2)),
            kinds=kinds,
            every_ms=100 if robber else chance.choice((100, 250, 500)),
            membership=chance.random() < 0.6,
            robber=robber,
        )


@dataclass(slots=True)
class Outcome:
    """What a run did. `trace` is a hash over every event and effect."""

    seed: int
    events: int
    trace: str
    counts: dict[str, int]
    story: list[str] = field(default_factory=list)


_COUNTED = (
    "elections", "crashes", "damages", "robberies", "truncations", "snapshots written",
    "snapshots fetched", "cuts", "reads confirmed", "resignations", "records committed",
    "changes answered", "changes refused", "voters added", "voters removed", "voters moved",
    "disks replaced", "kraft upgrades", "voter sets undone",
)  # fmt: skip


class RaftWorld:
    """All members of one run, and what lies between them."""

    def __init__(self, seed: int, *, tell: bool = False) -> None:
        self.seed = seed
        self.chance = random.Random(f"{seed}/world")
        self.faults = Faults.draw(random.Random(f"{seed}/faults"))
        self.config = CONFIG
        size = self.chance.choice((1, 3, 3, 3, 3, 5))
        # One observer in half the runs, with the next id; more who may become voters.
        others = self.chance.randint(1, 2) if self.faults.membership else self.chance.randint(0, 1)
        keys = [ReplicaKey(i, UUID(int=1000 + i)) for i in range(1, size + others + 1)]
        self.bootstrap: MembershipRecord | None = None
        self.bootstrap_ids: tuple[int, ...] = ()
        self._place_voters(keys[:size])
        if self.faults.membership:
            self.bootstrap_ids = tuple(-1 - key.node_id for key in keys)
        self.checks = RaftChecks(self.voters, self.bootstrap)
        self.counts = dict.fromkeys(_COUNTED, 0)
        self.operator = Operator(self)
        self.robber = Robber(self)
        self.lost: dict[ReplicaKey, RaftDisk] = {}
        self._moves: dict[int, int] = {}
        self.members = {key.node_id: SimulatedMember(self, key) for key in keys}
        for key in keys[size:]:
            self.members[key.node_id].disk = RaftDisk()
        self.disks = {node_id: member.disk for node_id, member in self.members.items()}
        self.now_ms = 0
        self.events = 0
        self.calm = False
        self._committed_at_heal = 0
        self.tell = tell
        self.story: list[str] = []
        self._cuts: dict[tuple[int, int], int] = {}  # (from, to) -> until
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._serving: dict[int, None] = {}
        self._trace = blake2b(digest_size=16)

    def _place_voters(self, keys: list[ReplicaKey]) -> None:
        """Static voters, known by id alone or not, or those of formatted disks."""
        known = self.chance.random() < 0.5
        self.voters = VoterSet(Voter(key if known else ReplicaKey(key.node_id)) for key in keys)
        if not self.faults.membership:
            return
        self.config = replace(CONFIG, auto_join=self.chance.random() < 0.3)
        if self.chance.random() < 0.25:
            self.voters = VoterSet(Voter(ReplicaKey(key.node_id)) for key in keys)
            return  # kraft.version 0, to be upgraded
        self.voters = VoterSet(())
        places = {key.node_id: {"CONTROLLER": ("host", key.node_id)} for key in keys}
        first = VoterSet(Voter(key, places[key.node_id], 0, 1) for key in keys)
        self.bootstrap = MembershipRecord(-1, 1, first)

    # Membership

    def can_vote(self, member: SimulatedMember) -> bool:
        """Whether a member is a controller; without changes those who don't vote are brokers."""
        return self.faults.membership or self.voters.get(member.node_id) is not None

    def endpoints_of(self, member: SimulatedMember) -> dict[str, tuple[str, int]]:
        """Where a member listens at present; it may move when it starts again."""
        if not self.faults.membership:
            return {}
        return {"CONTROLLER": ("host", member.node_id + 100 * self._moves.get(member.node_id, 0))}

    def disk_of(self, key: ReplicaKey) -> RaftDisk:
        """The disk of this key, in use or lost."""
        return self.lost[key] if key in self.lost else self.members[key.node_id].disk

    def probe(self, member: SimulatedMember, effect: ProbeVoter) -> None:
        """Ask a node what it supports."""
        node_id = effect.voter.key.node_id

        def arrive() -> None:
            levels = None if self.members[node_id].core is None else (0, 1)
            self.after(member, 1, lambda: member.probed(effect.token, levels))

        if not self._carry(member.node_id, node_id, arrive):
            self.after(member, REQUEST_TIMEOUT_MS, lambda: member.probed(effect.token, None))

    def next_number(self) -> int:
        self._sequence += 1
        return self._sequence

    # The clock

    def at(self, at_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (at_ms, self._sequence, action))

    def after(self, member: SimulatedMember, delay_ms: int, action: Callable[[], None]) -> None:
        """Do `action` later, unless the member has died by then."""
        incarnation = member.incarnation

        def act() -> None:
            if member.incarnation == incarnation and member.core is not None:
                action()

        self.at(self.now_ms + delay_ms, act)

    def run_until(self, stop: Callable[[], bool], limit_ms: int) -> bool:
        """Let time pass until `stop` (True) or the limit (False)."""
        while not stop():
            if not self._heap or self._heap[0][0] > limit_ms:
                self.now_ms = max(self.now_ms, limit_ms)
                return False
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()
        return True

    # Events

    def deliver(self, member: SimulatedMember, event: Event) -> None:
        if member.core is None:
            return
        if member.paused_until_ms > self.now_ms:
            self.after(
                member,
                member.paused_until_ms - self.now_ms,
                lambda: self.deliver(member, event),
            )
            return
        self.events += 1
        effects = member.handle(event, self.now_ms)
        line = f"{self.now_ms} {member.node_id} {event!r} {effects!r}"
        self._trace.update(line.encode())
        if self.tell:
            self.story.append(line)
        member.core.check_invariants()
        member.perform(effects)
        self._wake(member)

    def _wake(self, member: SimulatedMember) -> None:
        assert member.core is not None
        deadline_ms = member.core.deadline_ms
        if deadline_ms is None:
            return
        deadline_ms = max(deadline_ms, self.now_ms + 1)
        if member.tick_at_ms is None or deadline_ms < member.tick_at_ms:
            member.tick_at_ms = deadline_ms

            def tick() -> None:
                if member.tick_at_ms == deadline_ms:
                    member.tick_at_ms = None
                    self.deliver(member, Tick())

            self.after(member, deadline_ms - self.now_ms, tick)

    def serve_parked_soon(self, member: SimulatedMember) -> None:
        if member.node_id in self._serving:
            return
        self._serving[member.node_id] = None

        def serve() -> None:
            self._serving.pop(member.node_id, None)
            self.deliver(member, ServeParked())

        self.at(self.now_ms, serve)

    def note(self, text: str) -> None:
        self._trace.update(f"{self.now_ms} {text}".encode())
        if self.tell:
            self.story.append(f"{self.now_ms} -- {text}")

    # The network

    def disk_delay_ms(self) -> int:
        if not self.calm and self.chance.random() < self.faults.slow_disk:
            return self.chance.randint(10, 120)
        return self.chance.randint(0, 3)

    def _carry(self, src: int, dst: int, action: Callable[[], None]) -> bool:
        """Have `action` happen at `dst` after a delay; False if the message is lost."""
        if self._cuts.get((src, dst), 0) > self.now_ms:
            return False
        if not self.calm and self.chance.random() < self.faults.lose:
            return False
        most_ms = 2 if self.calm else self.faults.delay_max_ms
        self.at(self.now_ms + self.chance.randint(0, most_ms), action)
        return True

    def send_request(self, member: SimulatedMember, peer_id: int, request: Request) -> None:
        self._sequence += 1
        number = self._sequence
        member.outgoing[number] = (peer_id, request)
        # A bootstrap server is a member by another name.
        peer = self.members[peer_id if peer_id > 0 else -1 - peer_id]
        incarnation = member.incarnation
        said = request
        if isinstance(request, BeginEpochRequest) and self.faults.membership:
            said = request._replace(leader_address=self.endpoints_of(member)["CONTROLLER"])

        def arrive() -> None:
            if peer.core is None:
                if not peer.deaf:
                    self.after(member, 1, lambda: self._fail(member, number, hung_up=False))
                return
            self._sequence += 1
            token = self._sequence
            peer.incoming[token] = (member.node_id, incarnation, number, request)
            self.deliver(peer, RequestReceived(token, said))

        self._carry(member.node_id, peer.node_id, arrive)
        if not self.calm and self.chance.random() < self.faults.double:
            # A copy that an older connection still held.
            self._carry(member.node_id, peer.node_id, arrive)
        self.after(member, REQUEST_TIMEOUT_MS, lambda: self._fail(member, number, hung_up=True))

    def send_response(
        self, member: SimulatedMember, pending: tuple[int, int, int, Request], response: Response
    ) -> None:
        asker_id, incarnation, number, request = pending
        if asker_id == OPERATOR_ID:
            self.operator.answered(request, response.error)
            return
        asker = self.members[asker_id]
        if response.leader_id > 0 and self.faults.membership:
            place = self.endpoints_of(self.members[response.leader_id])["CONTROLLER"]
            response = response._replace(leader_address=place)

        def arrive() -> None:
            entry = asker.outgoing.get(number)
            if asker.incarnation == incarnation and entry is not None:
                del asker.outgoing[number]
                self.deliver(asker, ResponseReceived(entry[0], request, response))

        self._carry(member.node_id, asker_id, arrive)

    def _fail(self, member: SimulatedMember, number: int, *, hung_up: bool) -> None:
        """A request gets no answer. After a timeout its connection is closed, too."""
        entry = member.outgoing.pop(number, None)
        if entry is None:
            return
        peer_id, request = entry
        self.deliver(member, RequestFailed(peer_id, request))
        if hung_up:
            self.drop_link(member, peer_id)

    def drop_link(self, member: SimulatedMember, peer_id: int) -> None:
        """The connection from `member` to a peer is gone, with all that was under way on it."""
        for number, (to, _) in list(member.outgoing.items()):
            if to == peer_id:
                self._fail(member, number, hung_up=False)
        self.deliver(member, Disconnected(peer_id))
        peer = self.members[peer_id if peer_id > 0 else -1 - peer_id]
        for token, entry in list(peer.incoming.items()):
            if entry[0] == member.node_id and self.chance.random() < 0.5:
                peer.incoming.pop(token, None)
                self.deliver(peer, RequestAbandoned(token))

    # Faults

    def kill(self, member: SimulatedMember, *, power: bool) -> None:
        """Stop a member at once. A killed process is missed by its peers, a dead machine isn't."""
        if member.core is None:
            return
        self.note(f"{'power cut' if power else 'kill'} {member.node_id}")
        self.counts["crashes"] += 1
        member.die(keep_all=not power and self.chance.random() < 0.5)
        member.deaf = power
        if not power:
            for peer in self.members.values():
                if peer is not member:
                    self.after(
                        peer,
                        self.chance.randint(0, 3),
                        lambda peer=peer: self.drop_link(peer, member.node_id),  # type: ignore[misc]
                    )
        # Often back before anybody has noticed.
        down_ms = self.chance.randint(1, self.chance.choice((10, 1_500)))
        self.at(self.now_ms + down_ms, lambda: self.boot(member))

    def boot(self, member: SimulatedMember) -> None:
        if member.core is None:
            self.note(f"boot {member.node_id}")
            if self.faults.membership and not self.calm and self.chance.random() < 0.1:
                self._moves[member.node_id] = self._moves.get(member.node_id, 0) + 1
            member.boot()

    def _damage(self, member: SimulatedMember) -> None:
        """Spoil durable records of a member, or take its log: of one at a time, and never of a
        lonely one."""
        if not self.operator.bears_one_more():
            return
        self.kill(member, power=True)
        if member.core is None and self.chance.random() < 0.4:
            self.robber.rob(member)
        elif member.core is None:
            member.disk.damage(self.chance)
            self.counts["damages"] += 1

    def _fault(self) -> None:
        if self.calm:
            return
        self.at(self.now_ms + self.chance.randint(1, 2 * self.faults.every_ms), self._fault)
        kind = self.chance.choice(self.faults.kinds)
        ids = list(self.members)
        leaders = [node_id for node_id in ids if self.members[node_id].is_leader]
        # Half of the faults hit a leader, where they matter most.
        node_id = self.chance.choice(leaders if leaders and self.chance.random() < 0.5 else ids)
        member = self.members[node_id]
        until_ms = self.now_ms + self.chance.randint(50, 1_500)
        if kind in ("kill", "power"):
            self.kill(member, power=kind == "power")
        elif kind == "damage":
            self._damage(member)
        elif kind == "pause":
            member.paused_until_ms = until_ms
        elif kind == "resign":
            self.deliver(member, Resign())
        elif len(ids) > 1:
            others = [other for other in ids if other != node_id]
            if kind == "flap":
                self.drop_link(member, self.chance.choice(others))
                return
            if kind == "cut":
                others = [self.chance.choice(others)]
            both = kind == "isolate" or self.chance.random() < 0.5
            self.counts["cuts"] += 1
            for other in others:
                self.cut(node_id, other, until_ms)
                if both:
                    self.cut(other, node_id, until_ms)
        self.note(f"fault {kind} {node_id} until {until_ms}")

    def cut(self, source: int, target: int, until_ms: int) -> None:
        """What one says to another is lost until then."""
        self._cuts[source, target] = until_ms

    def mend(self, source: int, target: int) -> None:
        """It arrives again."""
        self._cuts.pop((source, target), None)

    def _first_kill(self) -> None:
        """Every run has a crash, of a leader if there is one by then."""
        ids = list(self.members)
        leaders = [node_id for node_id in ids if self.members[node_id].is_leader]
        member = self.members[self.chance.choice(leaders or ids)]
        self.kill(member, power="kill" not in self.faults.kinds)

    def heal(self) -> None:
        self.note("heal")
        self.calm = True
        self._committed_at_heal = len(self.checks.committed)
        self._cuts.clear()
        for member in self.members.values():
            member.paused_until_ms = 0
            self.boot(member)

    # Clients

    def _client(self) -> None:
        self.at(self.now_ms + self.chance.randint(1, 50), self._client)
        member = self.members[self.chance.choice(list(self.members))]
        core = member.core
        if core is None:
            return
        if self.calm and self._enough():
            return
        dice = self.chance.random()
        leaders = [m for m in self.members.values() if m.is_leader]
        leaders.sort(key=lambda m: m.core.state.epoch if m.core is not None else 0)
        paused = member.paused_until_ms > self.now_ms
        if dice < 0.06 and not paused:
            member.take_snapshot(trim=self.chance.random() < 0.7)
        elif dice < 0.25:
            # Where two believe to lead, the older one is who might answer wrongly.
            self._read(leaders[0] if len(leaders) > 1 else member)
        else:
            if dice < 0.9 and leaders:
                member = self.chance.choice(leaders)
            self._append(member)

    def _read(self, member: SimulatedMember) -> None:
        """Ask a member for a linearizable read; one that is paused finds it when it goes on."""
        if member.core is not None:
            self._sequence += 1
            member.reads[self._sequence] = len(self.checks.committed)
            self.deliver(member, ConfirmLeadership(self._sequence))

    def _append(self, member: SimulatedMember) -> None:
        if member.core is not None and member.is_leader:
            self._sequence += 1
            values = [f"{self._sequence}.{i}" for i in range(self.chance.randint(1, 3))]
            self.deliver(member, LeaderAppend(member.core.state.epoch, len(values), values))

    def _enough(self) -> bool:
        """Whether clients may fall silent: what is committed has grown since all healed, and
        past the old end of any log that was damaged."""
        return (
            self.events >= EVENTS_MIN
            and len(self.checks.committed) > self._committed_at_heal
            and not any(m.core and m.core.state.needs_end for m in self.members.values())
        )

    def converged(self) -> bool:
        """One leader that all follow to the end of its log, everybody whole again."""
        leaders = [m for m in self.members.values() if m.is_leader]
        if len(leaders) != 1:
            return False
        leader = leaders[0]
        assert leader.core is not None
        end = leader.core.state.log.end
        return all(
            member.core is not None
            and member.applied == end
            and member.core.state.leader_id == leader.node_id
            and member.core.state.needs_end is None
            for member in self.members.values()
        )

    # A run

    def run(self) -> Outcome:
        for member in self.members.values():
            self.at(self.chance.randint(0, 300), lambda member=member: self.boot(member))  # type: ignore[misc]
        self.at(self.chance.randint(0, 20), self._client)
        self.at(self.faults.every_ms, self._fault)
        self.at(self.chance.randint(100, 500), self._first_kill)
        if self.faults.robber:
            self.robber.lie_in_wait()
        if self.faults.membership:
            self.operator.begin()
        self.run_until(lambda: self.events >= CHAOS_EVENTS, CHAOS_MAX_MS)
        self.heal()
        healed = self.run_until(
            lambda: self._enough() and self.converged(), self.now_ms + CONVERGE_MAX_MS
        )
        self.checks.require(healed, "a healed quorum converges", self.seed, self.describe())
        self.counts["records committed"] = len(self.checks.committed)
        self._count_changes()
        return Outcome(self.seed, self.events, self._trace.hexdigest(), self.counts, self.story)

    def _count_changes(self) -> None:
        """What became of the voter set, by the committed log."""
        first = self.bootstrap.voters if self.bootstrap is not None else None
        records = [e.value for e in self.checks.committed if isinstance(e.value, MembershipRecord)]
        sets = [first, *(record.voters for record in records)]
        found = [voters for voters in sets if voters is not None]
        for before, after in pairwise(found):
            self.counts["voters added"] += len(after) > len(before)
            self.counts["voters removed"] += len(after) < len(before)
            self.counts["voters moved"] += len(after) == len(before) and after != before

    def describe(self) -> str:
        return "; ".join(
            f"node {m.node_id} down" if m.core is None else m.core.state.describe()
            for m in self.members.values()
        )


def run_seed(seed: int, *, tell: bool = False) -> Outcome:
    """Run one seed; `Violation` or AssertionError if a rule was broken."""
    world = RaftWorld(seed, tell=tell)
    try:
        return world.run()
    except AssertionError as error:
        if tell:
            error.add_note("\n".join(world.story))
        error.add_note(f"seed {seed} at {world.now_ms} ms, event {world.events}")
        raise


def run_seeds(seeds: range) -> dict[str, int]:
    """Run many seeds; the sum of their counts, with how many runs had an election and a crash."""
    total = dict.fromkeys((*_COUNTED, "runs", "events", "runs with election and crash"), 0)
    for seed in seeds:
        outcome = run_seed(seed)
        assert outcome.events >= EVENTS_MIN, outcome.seed
        total["runs"] += 1
        total["events"] += outcome.events
        total["runs with election and crash"] += (
            outcome.counts["elections"] > 0 and outcome.counts["crashes"] > 0
        )
        for name, count in outcome.counts.items():
            total[name] += count
    return total


__all__ = ["Outcome", "RaftWorld", "Violation", "run_seed", "run_seeds"]
