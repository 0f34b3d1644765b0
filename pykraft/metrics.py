"""A node's numbers in Prometheus' text format, read from the rooms when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reading:
    """One number: its name, what it tells, and where to read it."""

    name: str
    help: str
    read: Callable[[], float]
    is_counter: bool = False


class NodeMetrics(Collector):
    """The readings of one node; nothing is counted here, every room keeps its own numbers."""

    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        """A number that goes up and down."""
        self._add(Reading(name, help, read))

    def counter(self, name: str, help: str, read: Callable[[], float]) -> None:
        """A number that only grows; `name` ends in `_total`."""
        assert name.endswith("_total"), name
        self._add(Reading(name, help, read, is_counter=True))

    def _add(self, reading: Reading) -> None:
        assert reading.name not in self._readings, reading.name
        self._readings[reading.name] = reading

    def readings(self) -> tuple[Reading, ...]:
        """All readings, in the order they were added."""
        return tuple(self._readings.values())

    def collect(self) -> Iterator[Metric]:
        """Called by the Prometheus client at each exposition."""
        for reading in self._readings.values():
            kind = CounterMetricFamily if reading.is_counter else GaugeMetricFamily
            yield kind(reading.name, reading.help, value=reading.read())

    def exposition(self) -> bytes:
        """The body of /metrics."""
        return generate_latest(self._registry)
