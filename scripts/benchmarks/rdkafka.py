"""librdkafka at C speed: the library of the confluent-kafka wheel, called by ctypes.

A Python client costs more per record than the servers do. Here Python runs once per thousand
records: `produce_batch` takes an array that is filled once, failures alone are reported back, and
consumed records are handed to a function of librdkafka itself.
"""

from __future__ import annotations

import ctypes
import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path

PRODUCER, CONSUMER = 0, 1
OFFSET_BEGINNING = -2
EVENT_DR, EVENT_ERROR = 0x1, 0x8
BATCH = 1000
ERROR_TEXT_BYTES = 512


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


_SIGNATURES = {
    "rd_kafka_conf_new": (ctypes.c_void_p, ()),
    "rd_kafka_conf_set": (ctypes.c_int, "p s s p z"),
    "rd_kafka_conf_set_events": (None, "p i"),
    "rd_kafka_new": (ctypes.c_void_p, "i p p z"),
    "rd_kafka_destroy_flags": (None, "p i"),
    "rd_kafka_topic_new": (ctypes.c_void_p, "p s p"),
    "rd_kafka_topic_destroy": (None, "p"),
    "rd_kafka_produce_batch": (ctypes.c_int, "p I i p i"),
    "rd_kafka_flush": (ctypes.c_int, "p i"),
    "rd_kafka_outq_len": (ctypes.c_int, "p"),
    "rd_kafka_queue_get_main": (ctypes.c_void_p, "p"),
    "rd_kafka_queue_new": (ctypes.c_void_p, "p"),
    "rd_kafka_queue_poll": (ctypes.c_void_p, "p i"),
    "rd_kafka_event_type": (ctypes.c_int, "p"),
    "rd_kafka_event_message_next": (ctypes.POINTER(Message), "p"),
    "rd_kafka_event_error_string": (ctypes.c_char_p, "p"),
    "rd_kafka_event_destroy": (None, "p"),
    "rd_kafka_err2str": (ctypes.c_char_p, "i"),
    "rd_kafka_consume_start_queue": (ctypes.c_int, "p I l p"),
    "rd_kafka_consume_callback_queue": (ctypes.c_int, "p i p p"),
    "rd_kafka_query_watermark_offsets": (ctypes.c_int, "p s I p p i"),
    "rd_kafka_version_str": (ctypes.c_char_p, ()),
}
_TYPES = {
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "z": ctypes.c_size_t,
    "i": ctypes.c_int,
    "I": ctypes.c_int32,
    "l": ctypes.c_int64,
}


class LoadFailed(Exception):
    """The client could not do what the benchmark asks: its figures would be worthless."""


def load_library() -> ctypes.CDLL:
    """The librdkafka bundled with confluent-kafka, its functions declared."""
    spec = importlib.util.find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        raise LoadFailed("confluent-kafka is not installed")
    package = Path(spec.origin).parent
    found = sorted(package.parent.glob("confluent_kafka.libs/librdkafka*"))
    if not found:
        raise LoadFailed(f"no librdkafka in {package.parent / 'confluent_kafka.libs'}")
    library = ctypes.CDLL(str(found[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = [_TYPES[letter] for letter in arguments if letter in _TYPES]
    return library


class Client:
    """One librdkafka client with one topic."""

    def __init__(self, kind: int, settings: Mapping[str, object], topic: str) -> None:
        self.library = load_library()
        text = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
        conf = self.library.rd_kafka_conf_new()
        for key, value in settings.items():
            failed = self.library.rd_kafka_conf_set(
                conf, key.encode(), str(value).encode(), text, len(text)
            )
            if failed:
                raise LoadFailed(text.value.decode())
        self.library.rd_kafka_conf_set_events(conf, EVENT_DR | EVENT_ERROR)
        self.handle = self.library.rd_kafka_new(kind, conf, text, len(text))
        if not self.handle:
            raise LoadFailed(text.value.decode())
        self.topic_name = topic
        self.topic = self.library.rd_kafka_topic_new(self.handle, topic.encode(), None)
        self.events = self.library.rd_kafka_queue_get_main(self.handle)
        self.last_error = "none"

    def next_delivery(self, timeout_ms: int) -> int | None:
        """Waits for an event: how many records it reports, or None when the time is over.

        Raises LoadFailed for a record that was not acknowledged.
        """
        event = self.library.rd_kafka_queue_poll(self.events, timeout_ms)
        if not event:
            return None
        count = 0
        try:
            if self.library.rd_kafka_event_type(event) == EVENT_ERROR:
                self.last_error = self.library.rd_kafka_event_error_string(event).decode()
            while message := self.library.rd_kafka_event_message_next(event):
                count += 1
                if message.contents.err:
                    raise LoadFailed(
                        "a record was not acknowledged: "
                        + self.library.rd_kafka_err2str(message.contents.err).decode()
                    )
        finally:
            self.library.rd_kafka_event_destroy(event)
        return count

    def end_offset(self, partition: int) -> int:
        """The partition's high watermark, asked of its leader."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        failed = self.library.rd_kafka_query_watermark_offsets(
            self.handle,
            self.topic_name.encode(),
            partition,
            ctypes.byref(low),
            ctypes.byref(high),
            10_000,
        )
        if failed:
            raise LoadFailed(self.library.rd_kafka_err2str(failed).decode())
        return high.value


class Producing(Client):
    """Equal records, as many as wanted."""

    def __init__(self, settings: Mapping[str, object], topic: str, record_bytes: int) -> None:
        super().__init__(PRODUCER, settings, topic)
        # What it says is all one: records go uncompressed.
        self._payload = ctypes.create_string_buffer(bytes(range(256)) * (record_bytes // 256 + 1))
        self._batch = (Message * BATCH)()
        address = ctypes.addressof(self._payload)
        for message in self._batch:
            message.payload, message.len = address, record_bytes

    def enqueue(self, partition: int, count: int) -> None:
        """Hands over up to BATCH records; waits while librdkafka's queue is full."""
        while True:
            # No flag: librdkafka neither copies nor frees the payload, which outlives the run.
            count -= self.library.rd_kafka_produce_batch(
                self.topic, partition, 0, self._batch, count
            )
            if count == 0:
                return
            # Only failed deliveries come here (delivery.report.only.error), and they end the run.
            self.next_delivery(1)

    def flush(self, timeout_s: float) -> None:
        """Returns when every record is acknowledged."""
        deadline = time.monotonic() + timeout_s
        while self.library.rd_kafka_outq_len(self.handle) > 0:
            self.library.rd_kafka_flush(self.handle, 100)
            self.next_delivery(0)
            if time.monotonic() > deadline:
                raise LoadFailed(f"not flushed within {timeout_s:.0f} s ({self.last_error})")


class Consuming(Client):
    """Records of every partition of a topic, counted and dropped."""

    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        super().__init__(CONSUMER, settings, topic)
        self._records = self.library.rd_kafka_queue_new(self.handle)
        # Something cheap that takes a message: it must be C, called per record.
        self._look = ctypes.cast(self.library.rd_kafka_message_leader_epoch, ctypes.c_void_p)

    def start(self, partitions: int) -> None:
        """Fetches every partition from its beginning."""
        for partition in range(partitions):
            if self.library.rd_kafka_consume_start_queue(
                self.topic, partition, OFFSET_BEGINNING, self._records
            ):
                raise LoadFailed(f"can't consume partition {partition}")

    def take(self, timeout_ms: int) -> int:
        """How many records came; waits for the first."""
        return int(
            self.library.rd_kafka_consume_callback_queue(
                self._records, timeout_ms, self._look, None
            )
        )
