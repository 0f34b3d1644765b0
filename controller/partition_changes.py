"""Changes of partitions as the configs, the features and the brokers of the moment want them."""

from __future__ import annotations

from controller import eligible_replicas
from controller.cluster import acceptable_leader
from controller.configs import min_insync_replicas, unclean_election_enabled
from controller.context import Context
from controller.elections import Election, Terms, Wanted, change_partition
from metadata.image import TopicImage
from metadata.records import PartitionChangeRecord


def terms_of(context: Context, topic: str, election: Election | None = None) -> Terms:
    """The terms for a topic's partitions; the election is the one its config allows unless a
    particular one is asked for."""
    image, config = context.image, context.config
    if election is None:
        unclean = unclean_election_enabled(image, config, topic)
        election = Election.UNCLEAN if unclean else Election.ONLINE
    keep_elr = eligible_replicas.are_kept(image)
    return Terms(
        election=election,
        metadata_version=image.metadata_version,
        # Nothing else depends on it.
        min_isr=min_insync_replicas(image, config, topic) if keep_elr else 1,
        keep_elr=keep_elr,
    )


class TopicTerms:
    """The terms of topics that come one after the other, looked up once for each as long as no
    config or feature changes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._topic = ""
        self._configs = context.image.configs
        self._features = context.image.features
        self._terms: Terms | None = None

    def of(self, topic: str) -> Terms:
        """The topic's terms now."""
        image, terms = self._context.image, self._terms
        if (
            terms is None
            or topic != self._topic
            or image.configs is not self._configs
            or image.features is not self._features
        ):
            self._topic, self._configs, self._features = topic, image.configs, image.features
            terms = self._terms = terms_of(self._context, topic)
        return terms


def decide(
    context: Context, topic: TopicImage, index: int, wanted: Wanted, terms: Terms | None = None
) -> PartitionChangeRecord | None:
    """The record that brings the partition to `wanted`, under the topic's terms unless others are
    given; None for no change."""
    partition = topic.partitions[index]
    if wanted.directories is not None:
        located = partition._replace(directories=wanted.directories)
    else:
        located = partition
    return change_partition(
        topic.id,
        index,
        partition,
        wanted,
        acceptable_leader(context, located),
        terms_of(context, topic.name) if terms is None else terms,
    )
