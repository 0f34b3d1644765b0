"""Numbered records written without end at acks=all, and what must be in the log of them."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from proving.part import Failed

PENDING_MAX = 2_000


class Load:
    """An idempotent librdkafka producer in a thread of its own. Record i goes to partition
    i % partitions; `acknowledged` has, by partition, the offset of each number."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        self.refused: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": 180_000,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """Records acknowledged so far."""
        return sum(map(len, self.acknowledged))

    def stop(self, timeout_s: float) -> None:
        """Returns when every record written is acknowledged; Failed if one isn't."""
        self._stop.set()
        self._thread.join(timeout_s)
        left = self._producer.flush(timeout_s)
        if self._thread.is_alive() or left or self.refused:
            raise Failed(f"{left} records unacknowledged, refused: {self.refused[:3]}")

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            if len(self._producer) >= PENDING_MAX:
                self._producer.poll(0.01)
                continue
            self._producer.produce(
                self.topic,
                b"%d" % number,
                partition=number % self.partitions,
                on_delivery=self._told(number),
            )
            number += 1
            # Some thousand a second: enough to be under way always, few enough to read back.
            self._producer.poll(0.01 if number % 30 == 0 else 0)

    def _told(self, number: int) -> Any:
        def told(error: Any, message: Any) -> None:
            if error is not None:
                self.refused.append(str(error))
            else:
                self.acknowledged[message.partition()][number] = message.offset()

        return told

    def check(self, timeout_s: float) -> int:
        """Reads everything back; Failed unless each acknowledged record is at its offset, and
        each partition's numbers only rise. Returns how many records were read."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "-",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        places = [TopicPartition(self.topic, p) for p in range(self.partitions)]
        read = 0
        try:
            for place in places:
                low, high = consumer.get_watermark_offsets(place, timeout=timeout_s)
                if low != 0:
                    raise Failed(f"partition {place.partition} begins at offset {low}")
                read += self._check_partition(consumer, place.partition, high, timeout_s)
        finally:
            consumer.close()
        return read

    def _check_partition(self, consumer: Any, partition: int, end: int, timeout_s: float) -> int:
        consumer.assign([TopicPartition(self.topic, partition, 0)])
        found: dict[int, int] = {}
        offset, last = 0, -1
        deadline = time.monotonic() + timeout_s
        while offset < end:
            messages = consumer.consume(5000, timeout=0.2)
            if messages:
                deadline = time.monotonic() + timeout_s
            elif time.monotonic() > deadline:
                raise Failed(f"partition {partition}: nothing comes at offset {offset} of {end}")
            for message in messages:
                if message.error() is not None:
                    raise Failed(f"partition {partition}: {message.error()}")
                number = int(message.value())
                if message.offset() < offset or number <= last:
                    raise Failed(
                        f"partition {partition}: record {number} at offset {message.offset()} "
                        f"after record {last} at {offset - 1}"
                    )
                found[number] = message.offset()
                offset, last = message.offset() + 1, number
        for number, at in self.acknowledged[partition].items():
            if found.get(number) != at:
                raise Failed(
                    f"partition {partition}: record {number} was acknowledged at offset {at} "
                    f"and is at {found.get(number)}"
                )
        return len(found)
