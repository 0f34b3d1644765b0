"""One group coordinator with a log and a clock of its own, driven step by step."""

from __future__ import annotations

import random
import struct
from uuid import UUID

from broker.groups import events as e
from broker.groups.coordinator import GroupCoordinator
from broker.groups.effects import Answer, Append, Log
from broker.groups.regexes import compile_regex
from broker.groups.settings import GroupSettings
from wire.errors import ErrorCode

WALL_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def subscription(*topics):
    """A consumer's metadata, version 0."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


RANGE = (e.Protocol("range", subscription("t")),)


class GroupScene:
    """`answers` has what each caller was told; `log` what was appended, as (key, value, producer),
    of which the first `high_watermark` are committed.

    While `replicated` is true, whatever is appended is committed at once; `append_error` makes
    appends fail. From `hold` on nothing is heard of appends, until `fail` tells that the first of
    them was not made.
    """

    def __init__(self, seed=0, **settings):
        self.settings = GroupSettings(**settings)
        self.chance = random.Random(seed)
        self.now_ms = 5_000
        self.answers = {}
        self.asked = {}
        self.log = []
        self.markers = {}
        self.told_operator = []
        self.high_watermark = 0
        self.replicated = True
        self.append_error = None
        self.held = None
        self.core = self.new_core()
        self.tell(e.Loaded())

    @property
    def wall_ms(self):
        return WALL_MS + self.now_ms

    def new_core(self):
        return GroupCoordinator(
            self.settings, lambda: UUID(int=self.chance.getrandbits(128)), compile_regex
        )

    # -- the shell's part ------------------------------------------------------------------------

    def tell(self, event):
        """Hands an event in and performs the effects."""
        for effect in self.core.handle(event, self.now_ms, self.wall_ms):
            if isinstance(effect, Answer):
                assert effect.caller in self.asked, "an answer that nobody asked for"
                assert effect.caller not in self.answers, "a second answer"
                self.answers[effect.caller] = effect.value
            elif isinstance(effect, Append):
                self.append(effect)
            else:
                assert isinstance(effect, Log)
                self.told_operator.append((effect.event, dict(effect.fields)))

    def hold(self):
        self.held = []

    def fail(self, error=ErrorCode.not_enough_replicas):
        held, self.held = self.held, None
        if held:
            self.tell(e.AppendFailed(held[0].token, error))

    def append(self, effect):
        if self.held is not None:
            self.held.append(effect)
            return
        if self.append_error is not None:
            self.tell(e.AppendFailed(effect.token, self.append_error))
            return
        producer = -1 if effect.producer is None else effect.producer.producer_id
        self.log += [(*record, producer) for record in effect.records]
        self.tell(e.Appended(effect.token, len(self.log)))
        if self.replicated:
            self.commit()

    def end_transaction(self, producer_id, committed):
        self.markers[len(self.log)] = (producer_id, committed)
        self.log.append(None)
        self.tell(e.TransactionEnded(producer_id, committed, len(self.log)))
        if self.replicated:
            self.commit()

    def commit(self, upto=None):
        """The high watermark moves, to the log's end unless said otherwise."""
        self.high_watermark = len(self.log) if upto is None else upto
        self.tell(e.Committed(self.high_watermark))

    def advance(self, ms):
        """Time goes on, with every tick that the coordinator wants."""
        end = self.now_ms + ms
        while True:
            deadline = self.core.next_deadline_ms()
            if deadline is None or deadline > end:
                break
            self.now_ms = max(self.now_ms, deadline)
            self.tell(e.Tick())
        self.now_ms = end

    def loaded_copy(self, upto=None):
        """Another coordinator that has loaded the log, up to an offset."""
        core = self.new_core()
        for offset, record in enumerate(self.log[:upto]):
            if record is None:
                core.end_transaction(*self.markers[offset])
            else:
                core.replay(offset, *record)
        return core

    def fail_over(self):
        """Another broker leads; what was not committed is lost."""
        self.tell(e.Resigned())
        self.held = None
        del self.log[self.high_watermark :]
        self.core = self.loaded_copy()
        self.tell(e.Loaded())
        self.tell(e.Committed(self.high_watermark))

    # -- requests --------------------------------------------------------------------------------

    def ask(self, make, *args, **fields):
        """Returns the caller; what it is told will be in `answers`."""
        caller = len(self.asked)
        request = make(caller, *args, **fields)
        self.asked[caller] = request
        self.tell(request)
        return caller

    def told(self, make, *args, **fields):
        """The answer to a request, which must come at once."""
        return self.answers[self.ask(make, *args, **fields)]

    def join(self, member_id="", instance_id=None, group_id="g", protocols=RANGE, **fields):
        """Returns the caller of a join of a consumer."""
        values = {
            "client_id": "c",
            "client_host": "/1.2.3.4",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            **fields,
        }
        return self.ask(
            e.JoinGroup,
            group_id=group_id,
            member_id=member_id,
            instance_id=instance_id,
            protocols=protocols,
            **values,
        )

    def join_new(self, **fields):
        """Returns (member id, caller) of a dynamic member that joins with the id it is given."""
        given = self.answers[self.join(**fields)]
        assert given.error.name == "member_id_required"
        return given.member_id, self.join(given.member_id, **fields)

    def sync(self, joined, assignments=(), group_id="g", instance_id=None, **fields):
        """Returns the caller of a sync by the member that was told `joined`."""
        values = {
            "generation": joined.generation,
            "member_id": joined.member_id,
            "protocol_type": None,
            "protocol_name": None,
            **fields,
        }
        return self.ask(
            e.SyncGroup,
            group_id=group_id,
            instance_id=instance_id,
            assignments=tuple(assignments),
            **values,
        )

    def beat(self, joined, group_id="g", instance_id=None):
        """The error that a heartbeat is told."""
        return self.told(
            e.Heartbeat, group_id, joined.generation, joined.member_id, instance_id
        ).error

    def leave(self, *members, group_id="g"):
        """What a LeaveGroup of these (member id, instance id) is told."""
        return self.told(e.LeaveGroup, group_id, tuple(e.Leaving(*one) for one in members))

    def commit_offset(self, offset, partition=0, *, group_id="g", topic="t", **fields):
        """The error that a commit of one offset is told; without a member unless said."""
        values = {"member_id": "", "generation": -1, "instance_id": None, **fields}
        one = e.CommittedOffset(topic, partition, offset)
        return self.told(e.OffsetCommit, group_id, offsets=(one,), **values).errors[0]

    def offset(self, partition=0, group_id="g", topic="t", **fields):
        """What is committed for one partition."""
        told = self.told(e.OffsetFetch, group_id, ((topic, (partition,)),), **fields)
        return told.topics[0][1][0]

    def described(self, group_id="g"):
        return self.told(e.DescribeGroups, (group_id,)).groups[0]

    def state(self, group_id="g"):
        return self.described(group_id).state

    def stable(self, count=1, **fields):
        """A stable group; returns what its members were told when they joined, the leader first.
        Each is assigned its own id."""
        return self.synced(self.joined(count, **fields), fields.get("group_id", "g"))

    def joined(self, count=1, **fields):
        """What the members of a new group are told when they have joined; it waits for its leader's
        assignment."""
        callers = [self.join_new(**fields)[1] for _ in range(count)]
        while callers[-1] not in self.answers:
            self.advance(self.settings.group_initial_rebalance_delay_ms)
        return [self.answers[caller] for caller in callers]

    def synced(self, joined, group_id="g"):
        """All sync; returns `joined` again, the leader first."""
        joined = sorted(joined, key=lambda one: one.member_id != one.leader)
        ids = [one.member_id for one in joined]
        for one in joined:
            assigned = [(i, i.encode()) for i in ids] if one is joined[0] else ()
            self.sync(one, assigned, group_id)
        return joined
