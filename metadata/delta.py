"""What changed between two images, collected while records are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from metadata.image import TOPIC_RESOURCE, ConfigKey, MetadataImage
from metadata.maps import Map
from metadata.records import types as t


@dataclass(slots=True)
class ImageDelta:
    """The change from `previous` to `image`. Dicts are ordered sets in the order of change.

    `topics_changed` has the partitions created or changed (a new topic has an entry even without
    partitions), `topics_deleted` the names of topics that went.

    `full` says that `image` came from a snapshot and replaces all there was: topics and configs
    are not listed then, since to compare a million would hold everything up for seconds. Who
    follows them takes what concerns it from the image (its indexes lead to a broker's own)."""

    previous: MetadataImage
    image: MetadataImage
    full: bool = False
    topics_changed: dict[UUID, dict[int, None]] = field(default_factory=dict)
    topics_deleted: dict[UUID, str] = field(default_factory=dict)
    brokers_changed: dict[int, None] = field(default_factory=dict)
    controllers_changed: dict[int, None] = field(default_factory=dict)
    configs_changed: dict[ConfigKey, None] = field(default_factory=dict)
    features_changed: bool = False
    quotas_changed: bool = False
    scram_changed: bool = False
    acls_changed: bool = False
    tokens_changed: bool = False
    producer_ids_changed: bool = False
    voters_changed: bool = False

    def merge(self, later: ImageDelta) -> None:
        """Add a change that came after this one; the image becomes the later one's."""
        for topic_id in later.topics_deleted:
            self.topics_changed.pop(topic_id, None)
            if topic_id in self.previous.topics.by_id:
                self.topics_deleted[topic_id] = later.topics_deleted[topic_id]
        for topic_id, indexes in later.topics_changed.items():
            self.topics_deleted.pop(topic_id, None)
            self.topics_changed.setdefault(topic_id, {}).update(indexes)
        self.brokers_changed.update(later.brokers_changed)
        self.controllers_changed.update(later.controllers_changed)
        self.configs_changed.update(later.configs_changed)
        for flag in _FLAGS:
            if getattr(later, flag):
                setattr(self, flag, True)
        self.image = later.image

    @property
    def empty(self) -> bool:
        """Whether the image only moved on in the log."""
        return not (
            self.full
            or self.topics_changed
            or self.topics_deleted
            or self.brokers_changed
            or self.controllers_changed
            or self.configs_changed
            or any(getattr(self, flag) for flag in _FLAGS)
        )


_FLAGS: Final = (
    "features_changed",
    "quotas_changed",
    "scram_changed",
    "acls_changed",
    "tokens_changed",
    "producer_ids_changed",
    "voters_changed",
)


def note_partitions(delta: ImageDelta, topic_id: UUID, indexes: Iterable[int]) -> None:
    """Add partitions, made or changed, of a topic that there is."""
    delta.topics_changed.setdefault(topic_id, {}).update(dict.fromkeys(indexes))


def note_topic(delta: ImageDelta, record: t.TopicRecord) -> None:
    """Add a topic whose name and id weren't taken."""
    delta.topics_deleted.pop(record.topic_id, None)
    delta.topics_changed.setdefault(record.topic_id, {})


def _topic(delta: ImageDelta, before: MetadataImage, record: t.TopicRecord) -> None:
    for taken in (before.topic_by_id(record.topic_id), before.topic(record.name)):
        if taken is not None and (taken.id, taken.name) != (record.topic_id, record.name):
            _gone(delta, taken.id, taken.name)
    note_topic(delta, record)


def _gone(delta: ImageDelta, topic_id: UUID, name: str) -> None:
    delta.topics_changed.pop(topic_id, None)
    if topic_id in delta.previous.topics.by_id:
        delta.topics_deleted[topic_id] = name


def _remove_topic(delta: ImageDelta, before: MetadataImage, record: t.RemoveTopicRecord) -> None:
    topic = before.topic_by_id(record.topic_id)
    if topic is None:
        return
    _gone(delta, topic.id, topic.name)
    if (TOPIC_RESOURCE, topic.name) in before.configs:
        delta.configs_changed[(TOPIC_RESOURCE, topic.name)] = None


def _clear_elr(delta: ImageDelta, before: MetadataImage, record: t.ClearElrRecord) -> None:
    names = [record.topic_name] if record.topic_name else sorted(before.topics.by_name)
    for name in names:
        topic = before.topic(name)
        if topic is None:
            continue
        for index in sorted(topic.partitions):
            if topic.partitions[index].elr or topic.partitions[index].last_known_elr:
                delta.topics_changed.setdefault(topic.id, {})[index] = None


def _broker(delta: ImageDelta, before: MetadataImage, record: Any) -> None:
    delta.brokers_changed[record.broker_id] = None


def _broker_fence(delta: ImageDelta, before: MetadataImage, record: Any) -> None:
    delta.brokers_changed[record.id] = None


def _controller(delta: ImageDelta, before: MetadataImage, record: Any) -> None:
    delta.controllers_changed[record.controller_id] = None


def _config(delta: ImageDelta, before: MetadataImage, record: t.ConfigRecord) -> None:
    delta.configs_changed[(record.resource_type, record.resource_name)] = None


def _flag(name: str) -> Callable[[ImageDelta, MetadataImage, Any], None]:
    def note(delta: ImageDelta, before: MetadataImage, record: Any) -> None:
        setattr(delta, name, True)

    return note


_NOTE: Final[dict[type[Any], Callable[[ImageDelta, MetadataImage, Any], None]]] = {
    t.RegisterBrokerRecord: _broker,
    t.UnregisterBrokerRecord: _broker,
    t.BrokerRegistrationChangeRecord: _broker,
    t.FenceBrokerRecord: _broker_fence,
    t.UnfenceBrokerRecord: _broker_fence,
    t.TopicRecord: _topic,
    t.RemoveTopicRecord: _remove_topic,
    t.ClearElrRecord: _clear_elr,
    t.ConfigRecord: _config,
    t.FeatureLevelRecord: _flag("features_changed"),
    t.ClientQuotaRecord: _flag("quotas_changed"),
    t.UserScramCredentialRecord: _flag("scram_changed"),
    t.RemoveUserScramCredentialRecord: _flag("scram_changed"),
    t.AccessControlEntryRecord: _flag("acls_changed"),
    t.RemoveAccessControlEntryRecord: _flag("acls_changed"),
    t.DelegationTokenRecord: _flag("tokens_changed"),
    t.RemoveDelegationTokenRecord: _flag("tokens_changed"),
    t.ProducerIdsRecord: _flag("producer_ids_changed"),
    t.RegisterControllerRecord: _controller,
}


def note(delta: ImageDelta, before: MetadataImage, record: Any) -> None:
    """Add what a record other than of a partition touches; `before` is the image just before it.
    Partitions are noted many at once (`metadata.topics_draft`)."""
    noter = _NOTE.get(type(record))
    if noter is not None:
        noter(delta, before, record)


def _changed_keys(before: Map[Any, Any], after: Map[Any, Any]) -> dict[Any, None]:
    if before is after:
        return {}
    changed = [key for key in after if before.get(key) != after[key]]
    changed.extend(key for key in before if key not in after)
    return dict.fromkeys(sorted(changed))


def replaced(previous: MetadataImage, image: MetadataImage) -> ImageDelta:
    """The change where an image replaces another as a whole (see `ImageDelta.full`)."""
    delta = ImageDelta(previous, image, full=True)
    delta.brokers_changed = _changed_keys(previous.brokers, image.brokers)
    delta.controllers_changed = _changed_keys(previous.controllers, image.controllers)
    delta.features_changed = previous.features != image.features
    delta.quotas_changed = previous.quotas != image.quotas
    delta.scram_changed = previous.scram != image.scram
    delta.acls_changed = previous.acls != image.acls
    delta.tokens_changed = previous.tokens != image.tokens
    delta.producer_ids_changed = previous.next_producer_id != image.next_producer_id
    delta.voters_changed = (previous.voters, previous.kraft_version) != (
        image.voters,
        image.kraft_version,
    )
    return delta
