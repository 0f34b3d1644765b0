"""Clients of a classic group, a coordinator that fails over at any moment, and what must hold.

No partition has two owners in one generation; no commit that was acknowledged is lost or goes
back; a coordinator that loads the log knows what the one knew that wrote it; whoever asks is
answered once; and in the end, when nothing fails any more, the group is stable.
"""

import random

from examples import examples
from group_scene import GroupScene
from hypothesis import given
from hypothesis import strategies as st

from broker.groups import events as e
from wire.errors import ErrorCode

NONE = ErrorCode.none
PARTITIONS = 3
# After these a client has lost its id; after these others it has to join again.
IDENTITY_LOST = {ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id}


class Client:
    """A consumer as simple as the protocol allows. Static ones have an instance id."""

    def __init__(self, world, number):
        self.world = world
        self.instance_id = f"i{number}" if number >= 2 else None
        self.forget()

    def forget(self):
        """The process starts anew."""
        self.member_id = ""
        self.stop()

    def stop(self):
        """It owns nothing and has to join."""
        self.joined = None
        self.joining = self.syncing = None
        self.owned = None

    def act(self):
        """Does the next thing that it has to, if it need not wait for an answer."""
        if self.joining is not None:
            self._take_join()
        elif self.syncing is not None:
            self._take_sync()
        elif self.joined is None:
            session_ms = 10_000 if self.instance_id is None else 120_000
            self.joining = self.world.join(
                self.member_id, self.instance_id, session_timeout_ms=session_ms
            )
        else:
            self._failed(self.world.beat_of(self))

    def _take_join(self):
        told = self.world.answers.get(self.joining)
        if told is None:
            return
        self.joining = None
        if told.error is ErrorCode.member_id_required:
            self.member_id = told.member_id
        if self._failed(told.error):
            return
        self.member_id, self.joined = told.member_id, told
        assignments = ()
        if told.leader == told.member_id and not told.skip_assignment:
            ids = [one.member_id for one in told.members]
            assignments = [
                (one, bytes(p for p in range(PARTITIONS) if ids[p % len(ids)] == one))
                for one in ids
            ]
        self.syncing = self.world.sync(told, assignments, instance_id=self.instance_id)

    def _take_sync(self):
        told = self.world.answers.get(self.syncing)
        if told is None:
            return
        self.syncing = None
        if not self._failed(told.error):
            self.owned = told.assignment
            self.world.owns(self)

    def _failed(self, error):
        if error is None or error is NONE:
            return False
        if error in IDENTITY_LOST:
            self.member_id = ""
        self.stop()
        return True

    @property
    def is_settled(self):
        return self.owned is not None


class World(GroupScene):
    """The scene with appends that wait, and a memory of what was acknowledged."""

    def __init__(self):
        super().__init__()
        self.clients = [Client(self, number) for number in range(4)]
        self.owners = {}
        # Per partition, all commits in order, as [offset, caller].
        self.commits = {p: [] for p in range(PARTITIONS)}
        self.ends = [0]
        self.untold = []
        self.lazy = False
        self.replicated = False

    # -- the log ---------------------------------------------------------------------------------

    def append(self, effect):
        self.untold.append(effect)
        if not self.lazy:
            self.flush()

    def flush(self):
        while self.untold:
            effect = self.untold.pop(0)
            if self.append_error is not None:
                self.untold.clear()
                self.tell(e.AppendFailed(effect.token, self.append_error))
                return
            super().append(effect)
            self.ends.append(len(self.log))

    def move_high_watermark(self, appends):
        """Over so many more appends."""
        ahead = [end for end in self.ends if end > self.high_watermark]
        if ahead:
            self.commit(ahead[min(appends, len(ahead) - 1)])

    def fail_over(self):
        self.untold.clear()
        self.ends = [end for end in self.ends if end <= self.high_watermark]
        super().fail_over()

    # -- what clients do -------------------------------------------------------------------------

    def beat_of(self, client):
        caller = self.ask(
            e.Heartbeat,
            "g",
            client.joined.generation,
            client.member_id,
            client.instance_id,
        )
        answer = self.answers.get(caller)
        return None if answer is None else answer.error

    def owns(self, client):
        who = client.instance_id or client.member_id
        for partition in client.owned:
            place = client.joined.generation, partition
            assert self.owners.setdefault(place, who) == who, f"two owners of {place}"

    def commit_by(self, client, partition):
        fields = {"member_id": "", "generation": -1, "instance_id": None}
        if client.joined is not None:
            fields = {
                "member_id": client.member_id,
                "generation": client.joined.generation,
                "instance_id": client.instance_id,
            }
        offset = sum(map(len, self.commits.values())) + 1
        one = e.CommittedOffset("t", partition, offset)
        commit = [offset, None]
        self.commits[partition].append(commit)
        commit[1] = self.ask(e.OffsetCommit, "g", offsets=(one,), **fields)

    # -- what must hold --------------------------------------------------------------------------

    def check(self):
        self.check_commits()
        self.check_copy()

    def check_commits(self):
        """The committed offset is the last acknowledged one, or one after it that may count."""
        for partition, commits in self.commits.items():
            may_be = [-1]
            for offset, caller in commits:
                answer = self.answers.get(caller)
                error = None if answer is None else answer.errors[0]
                if error is NONE:
                    may_be = [offset]
                elif error is None or error is ErrorCode.not_coordinator:
                    may_be.append(offset)
            assert self.offset(partition).offset in may_be

    def check_copy(self):
        """A coordinator that loads what is committed knows it as the one does that serves."""
        copy = GroupScene()
        copy.log, copy.markers = self.log[: self.high_watermark], self.markers
        copy.high_watermark = self.high_watermark
        copy.fail_over()
        ours = self.told(e.OffsetFetch, "g", None)
        theirs = copy.told(e.OffsetFetch, "g", None)
        assert sorted(ours.topics) == sorted(theirs.topics)
        group, same = self.described(), copy.described()
        if self.high_watermark == len(self.log) and not self.untold and group.state == "Stable":
            assert sorted(group.members) == sorted(same.members)
            assert group.protocol_name == same.protocol_name

    def settle(self):
        """Nothing fails any more: everybody gets a part, and all partitions are owned."""
        self.lazy, self.append_error = False, None
        self.flush()
        self.replicated = True
        self.commit()
        for _ in range(200):
            for client in self.clients:
                client.act()
            self.advance(1_000)
            if all(client.is_settled for client in self.clients):
                group = self.described()
                members = {member.member_id for member in group.members}
                # Those of clients that started anew are members until their sessions end.
                if group.state == "Stable" and members == {c.member_id for c in self.clients}:
                    break
        else:
            raise AssertionError(f"the group does not settle: {self.described()}")
        owned = sorted(p for client in self.clients for p in client.owned)
        assert owned == list(range(PARTITIONS))
        self.check()
        self.tell(e.Resigned())
        assert set(self.answers) == set(self.asked)


OPS = (
    ["act"] * 10
    + ["commit"] * 4
    + ["move"] * 5
    + [
        "tick",
        "long tick",
        "longer tick",
        "lazy",
        "flush",
        "fail",
        "fail_over",
        "restart",
        "leave",
        "check",
    ]
)


def step(world, op, number, ms):
    client = world.clients[number]
    if op == "act":
        client.act()
    elif op == "commit":
        world.commit_by(client, ms % PARTITIONS)
    elif op == "move":
        world.move_high_watermark(number)
    elif op == "tick":
        world.advance(ms)
    elif op == "long tick":
        world.advance(ms * 20)
    elif op == "longer tick":
        world.advance(ms * 65)
    elif op == "lazy":
        world.lazy = not world.lazy
        world.flush()
    elif op == "flush":
        world.flush()
    elif op == "fail":
        error = ErrorCode.not_enough_replicas
        world.append_error = error if world.append_error is None else None
    elif op == "fail_over":
        world.fail_over()
    elif op == "restart":
        client.forget()
    elif op == "leave" and client.joined is not None:
        world.ask(e.LeaveGroup, "g", (e.Leaving(client.member_id, client.instance_id),))
        client.forget()
    elif op == "check":
        world.check()


STEPS = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, 3), st.integers(1, 1_000)), max_size=150
)


@examples(100)
@given(STEPS)
def test_whatever_happens_owners_are_single_commits_stay_and_the_log_tells_it_all(steps):
    world = World()
    for one in steps:
        step(world, *one)
    world.check()
    world.settle()


def test_random_histories_get_somewhere():
    """The same machine driven long by a fixed stream: groups have to become stable, and fail."""
    chance = random.Random(7)
    generations = acknowledged = failed_over = 0
    for _ in range(60):
        world = World()
        for _ in range(300):
            op = chance.choice(OPS)
            failed_over += op == "fail_over"
            step(world, op, chance.randrange(4), chance.randint(1, 1_000))
        world.settle()
        generations += max(generation for generation, _ in world.owners)
        acknowledged += sum(
            world.answers[caller].errors[0] is NONE
            for commits in world.commits.values()
            for _, caller in commits
        )
    assert generations > 120
    assert acknowledged > 200
    assert failed_over > 200
