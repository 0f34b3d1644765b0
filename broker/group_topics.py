"""The metadata image's topics as group coordinators know them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker.groups.events import Topic
from metadata.image import MetadataImage, PartitionRegistration, TopicImage


class TopicsView(Mapping[str, Topic]):
    """The topics of one image by name, each made when it is asked for: a coordinator looks at the
    few that its groups subscribe to, of maybe a million."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._made: dict[str, Topic] = {}
        self._racks = racks_of(image)

    def __getitem__(self, name: str) -> Topic:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(self._image.topics_by_name[name])
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._image.topics_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._image.topics_by_name))

    def __len__(self) -> int:
        return len(self._image.topics_by_name)

    def _make(self, topic: TopicImage) -> Topic:
        racks: tuple[tuple[str, ...], ...] = ()
        if self._racks:
            racks = tuple(
                self._racks_of(topic.partitions[index]) for index in sorted(topic.partitions)
            )
        return Topic(topic.id, len(topic.partitions), racks)

    def _racks_of(self, partition: PartitionRegistration) -> tuple[str, ...]:
        found = (self._racks[r] for r in partition.replicas if r in self._racks)
        return tuple(sorted(dict.fromkeys(found)))


def racks_of(image: MetadataImage) -> dict[int, str]:
    """The racks of the brokers that have one, by broker id."""
    registered = [image.brokers[broker_id] for broker_id in sorted(image.brokers)]
    return {broker.id: broker.rack for broker in registered if broker.rack}
