"""A consumer of the classic protocol, step by step, in a group of whatever type."""

from __future__ import annotations

from consumer_scene import topic_id
from subscriptions import subscription

from broker.groups import events as e
from wire.consumer_protocol import read_assignment, write_assignment
from wire.errors import ErrorCode

_COME_AGAIN = (ErrorCode.rebalance_in_progress, ErrorCode.not_coordinator, ErrorCode.none)


class EagerConsumer:
    """It subscribes to topic t, and gives up all that it has before it joins again. `step` goes on
    as far as it can without waiting; `owned` are its partitions.

    The one that leads a classic group hands out the partitions in turn.
    """

    def __init__(self, scene, instance_id=None):
        self.scene = scene
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned = ()
        self.joining = self.syncing = None

    @property
    def is_in(self):
        return self.generation >= 0 and self.joining is None and self.syncing is None

    def step(self):
        """One step of its life."""
        if self.joining is not None:
            self._joined()
        elif self.syncing is not None:
            self._synced()
        elif self.generation < 0:
            self._join()
        else:
            error = self.scene.told(
                e.Heartbeat, "g", self.generation, self.member_id, self.instance_id
            ).error
            if error is not ErrorCode.none:
                self._out(error)

    def _out(self, error):
        self.owned = ()
        self.generation = -1
        self.joining = self.syncing = None
        if error not in _COME_AGAIN:
            self.member_id = ""

    def _join(self):
        protocols = (e.Protocol("range", subscription("t")),)
        self.joining = self.scene.join(self.member_id, self.instance_id, protocols=protocols)

    def _joined(self):
        told = self.scene.answers.get(self.joining)
        if told is None:
            return
        self.joining = None
        if told.error is ErrorCode.member_id_required:
            self.member_id = told.member_id
            self._join()
        elif told.error is not ErrorCode.none:
            self._out(told.error)
        else:
            self.member_id, self.generation = told.member_id, told.generation
            assignments = self._assign(told) if told.leader == told.member_id else ()
            self.syncing = self.scene.sync(told, assignments, instance_id=self.instance_id)

    def _assign(self, told):
        ids = [member.member_id for member in told.members]
        count = self.scene.topics["t"]
        return [
            (one, write_assignment(3, {"t": tuple(range(number, count, len(ids)))}))
            for number, one in enumerate(ids)
        ]

    def _synced(self):
        told = self.scene.answers.get(self.syncing)
        if told is None:
            return
        self.syncing = None
        if told.error is not ErrorCode.none:
            self._out(told.error)
        else:
            self.owned = read_assignment(told.assignment).partitions.get("t", ())

    def leave(self):
        self.scene.leave((self.member_id, self.instance_id))
        self._out(ErrorCode.unknown_member_id)

    def pairs(self):
        """What it owns, by topic id."""
        return [(topic_id("t"), partition) for partition in self.owned]
