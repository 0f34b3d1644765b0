"""Counters and gauges of one controller; whoever serves metrics reads the attributes."""

from __future__ import annotations

from dataclasses import dataclass

from controller.core import Controller
from metadata.image import MetadataImage


@dataclass(slots=True)
class ControllerMetrics:
    """Counters only rise. Gauges are of the committed image on every controller."""

    active: bool = False
    activations: int = 0
    resignations: int = 0
    core_failures: int = 0
    requests: int = 0
    refused_requests: int = 0
    forwarded_requests: int = 0
    records_appended: int = 0
    waiting_requests: int = 0
    active_brokers: int = 0
    fenced_brokers: int = 0
    offline_partitions: int = 0
    topics: int = 0
    # On the active controller only, as its last search for preferred leaders found it.
    preferred_imbalance: int = 0


def measure(metrics: ControllerMetrics, core: Controller, image: MetadataImage) -> None:
    """Brings the gauges up to date; cheap enough for every committed batch."""
    metrics.active = core.active
    metrics.waiting_requests = core.waiting
    metrics.preferred_imbalance = core.preferred_imbalance
    fenced = sum(1 for broker in image.brokers.values() if broker.fenced)
    metrics.fenced_brokers = fenced
    metrics.active_brokers = len(image.brokers) - fenced
    metrics.topics = len(image.topics_by_name)
    metrics.offline_partitions = sum(len(held) for held in image.topics.leaderless.values())
