"""The groups that this broker coordinates: one `GroupPartition` for each partition of
`__consumer_offsets` that the metadata image has it lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from broker.config import BrokerConfig
from broker.group_loading import LoadReport
from broker.group_partition import (
    LONGEST_TEXT,
    OFFSETS_TOPIC,
    Core,
    Done,
    GroupCounters,
    GroupPartition,
)
from broker.group_topics import TopicsView, racks_of
from broker.groups.events import Event, GroupsConfigured, TopicsKnown
from broker.groups.settings import GroupOverrides
from broker.replica_manager import ReplicaManager
from metadata.configs import group_overrides
from metadata.delta import ImageDelta
from metadata.image import EMPTY, GROUP_RESOURCE, MetadataImage, PartitionRegistration, TopicImage
from wire.apis import ErrorCode
from wire.java import java_string_hash
from world.env import Env

_LOWEST_INT = -(1 << 31)


class GroupCoordinators:
    """See the module's text. `make_core` makes a partition's core, empty."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        replicas: ReplicaManager,
        make_core: Callable[[], Core],
    ) -> None:
        self._env = env
        self._config = config
        self._replicas = replicas
        self._make_core = make_core
        self.counters = GroupCounters()
        self._image: MetadataImage = EMPTY
        self._topic: TopicImage | None = None
        # Among how many of its partitions the groups are divided.
        self._count = 0
        self._known = TopicsKnown(-1, {})
        self._configured = GroupsConfigured({})
        self._led: dict[int, GroupPartition] = {}
        self._closed = False
        self._log = structlog.get_logger("broker.groups").bind(node_id=config.node_id)
        self._report = LoadReport(env, self._log)

    # -- what handlers ask ---------------------------------------------------------------------

    def ask(
        self, group_id: str, make: Callable[[int], Event], done: Done, *, waits: bool = False
    ) -> None:
        """Has the group's coordinator answer a request, made for the caller's number that it is
        given. `done` gets the core's value, or an ErrorCode where no core answers.

        `waits` is for requests that wait for other members: the others have to be answered
        within offsets.commit.timeout.ms.
        """
        if len(group_id) > LONGEST_TEXT:
            done(ErrorCode.invalid_request)
            return
        partition = self._led.get(self.partition_of(group_id))
        if partition is None:
            done(self._nobody)
            return
        partition.ask(make, done, None if waits else self._config.offsets_commit_timeout_ms)

    def ask_all(self, make: Callable[[int], Event], done: Callable[[list[object]], None]) -> None:
        """Has all partitions led here answer a request; `done` gets their outcomes."""
        partitions = [self._led[index] for index in sorted(self._led)]
        gather = Gather(len(partitions), done)
        for place, partition in enumerate(partitions):
            partition.ask(make, gather.taker(place), self._config.offsets_commit_timeout_ms)

    def ask_parted(
        self,
        group_ids: Sequence[str],
        make: Callable[[int, tuple[str, ...]], Event],
        done: Callable[[list[tuple[tuple[str, ...], object]]], None],
    ) -> None:
        """Has the coordinator of each of these groups answer a request about those that are its
        own; `done` gets the groups of each request with its outcome."""
        parts: dict[int, list[str]] = {}
        for group_id in group_ids:
            parts.setdefault(self.partition_of(group_id), []).append(group_id)
        asked = [tuple(ids) for ids in parts.values()]
        gather = Gather(len(asked), lambda outcomes: done(list(zip(asked, outcomes, strict=True))))
        for place, ids in enumerate(asked):

            def made(caller: int, ids: tuple[str, ...] = ids) -> Event:
                return make(caller, ids)

            self.ask(ids[0], made, gather.taker(place))

    def partition_of(self, group_id: str) -> int:
        """The partition of the offsets topic that a group belongs to; -1 without that topic, or for
        an id that is too long for any group's.

        Partitions that are added while this broker runs don't count until it starts again, as in
        Kafka: the groups that they would take over have their members and offsets elsewhere.
        """
        if self._topic is None or len(group_id) > LONGEST_TEXT:
            return -1
        value = java_string_hash(group_id)
        return (0 if value == _LOWEST_INT else abs(value)) % self._count

    @property
    def partitions(self) -> list[GroupPartition]:
        """Those led here, by index."""
        return [self._led[index] for index in sorted(self._led)]

    @property
    def _nobody(self) -> ErrorCode:
        if self._closed:
            return ErrorCode.coordinator_not_available
        return ErrorCode.not_coordinator

    # -- the image -----------------------------------------------------------------------------

    def on_image(self, image: MetadataImage, delta: ImageDelta | None = None) -> None:
        """The committed image is this now; `delta` is what changed, None where that isn't known.

        To be called after the replicas were told.
        """
        if self._closed:
            return
        before, self._image = self._image, image
        self._tell_topics(before, image, delta)
        self._tell_configs(before, image, delta)
        self._follow(image)

    def _follow(self, image: MetadataImage) -> None:
        """Resigns what others lead now, and begins what this broker does."""
        topic = image.topic(OFFSETS_TOPIC)
        before, self._topic = self._topic, topic
        if topic is before:
            return
        recreated = topic is None or (before is not None and before.id != topic.id)
        self._divide(before, topic)
        for index in sorted(self._led):
            partition = None if recreated or topic is None else topic.partitions.get(index)
            if partition is None or not self._goes_on(self._led[index], partition):
                self._led.pop(index).resign()
        if topic is None:
            return
        for index in sorted(topic.partitions):
            partition = topic.partitions[index]
            if partition.leader == self._config.node_id and index not in self._led:
                led = GroupPartition(
                    self._env,
                    self._config,
                    self._replicas,
                    self._make_core,
                    self.counters,
                    self._report,
                    index,
                    partition.leader_epoch,
                )
                self._led[index] = led
                led.start(self._known, self._configured)

    def _divide(self, before: TopicImage | None, topic: TopicImage | None) -> None:
        if topic is None:
            return
        if before is None or before.id != topic.id:
            self._count = len(topic.partitions)
        elif len(before.partitions) != len(topic.partitions):
            self._log.warning(
                "offsets_topic_has_grown", partitions=len(topic.partitions), used=self._count
            )

    def _goes_on(self, led: GroupPartition, partition: PartitionRegistration) -> bool:
        """Whether we lead it still. If more than one epoch has passed since the last image,
        somebody else may have led, and appended, in between."""
        if partition.leader != self._config.node_id:
            return False
        if partition.leader_epoch > led.leader_epoch + 1:
            return False
        led.leader_epoch = partition.leader_epoch
        return True

    def _tell_configs(
        self, before: MetadataImage, image: MetadataImage, delta: ImageDelta | None
    ) -> None:
        if image.configs is before.configs:
            return
        changed = image.configs if delta is None or delta.full else delta.configs_changed
        groups = sorted(name for kind, name in changed if kind == GROUP_RESOURCE)
        overrides = dict(self._configured.overrides)
        if changed is image.configs:
            overrides.clear()
        for group in groups:
            overrides[group] = _overrides(group_overrides(image, group))
        overrides = {group: own for group, own in overrides.items() if any(own)}
        if overrides == self._configured.overrides:
            return
        self._configured = GroupsConfigured(overrides)
        for partition in self.partitions:
            partition.groups_configured(self._configured)

    def _tell_topics(
        self, before: MetadataImage, image: MetadataImage, delta: ImageDelta | None
    ) -> None:
        if image.topics is before.topics and image.brokers is before.brokers:
            return
        changed, deleted = _changes(before, image, delta)
        if changed == ():
            return
        self._known = TopicsKnown(image.last_offset, TopicsView(image), changed)
        for partition in self.partitions:
            partition.topics_known(self._known)
            if deleted:
                partition.topics_deleted(deleted)

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Turns everybody off; nothing is coordinated here any more."""
        self._closed = True
        for index in sorted(self._led):
            self._led.pop(index).resign()


class Gather:
    """Calls `done` with all outcomes once the last one is there."""

    def __init__(self, count: int, done: Callable[[list[object]], None]) -> None:
        self._outcomes: list[object] = [None] * count
        self._missing = count
        self._done = done
        if not count:
            done([])

    def taker(self, place: int) -> Done:
        """What takes the outcome of this place, once."""

        def take(outcome: object) -> None:
            self._outcomes[place] = outcome
            self._missing -= 1
            if not self._missing:
                self._done(self._outcomes)

        return take


def _overrides(values: Mapping[str, int]) -> GroupOverrides:
    return GroupOverrides(
        values.get("consumer.session.timeout.ms"),
        values.get("consumer.heartbeat.interval.ms"),
        values.get("consumer.assignment.interval.ms"),
    )


def _changes(
    before: MetadataImage, image: MetadataImage, delta: ImageDelta | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The names of topics that are another now (None where that isn't known), and of those that
    are gone."""
    if delta is None or delta.full:
        gone = [
            topic.name
            for topic_id, topic in before.topics_by_id.items()
            if image.topic_by_id(topic_id) is None
        ]
        return None, tuple(sorted(gone))
    deleted = tuple(delta.topics_deleted.values())
    if delta.brokers_changed and racks_of(image) != racks_of(before):
        return None, deleted
    changed = []
    for topic_id, indexes in delta.topics_changed.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None and _is_another(before.topic_by_id(topic_id), topic, indexes):
            changed.append(topic.name)
    return tuple(dict.fromkeys((*deleted, *changed))), deleted


def _is_another(known: TopicImage | None, topic: TopicImage, indexes: Iterable[int]) -> bool:
    """Whether groups would see a difference in these partitions: not in new leaders or ISRs."""
    if known is None or len(known.partitions) != len(topic.partitions):
        return True
    return any(
        known.partitions[index].replicas != topic.partitions[index].replicas for index in indexes
    )
