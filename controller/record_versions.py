"""The bytes of a record as Kafka's controller writes them."""

from __future__ import annotations

from metadata.records import BrokerRegistrationChangeRecord, Record, encode, encode_at


def encode_record(record: Record, metadata_version: int) -> bytes:
    """The framed value at that level.

    Of most types a level has one version. A change of a broker's registration is written in the
    lowest version that can say it (seen in logs of 3.7 to 4.2): fencing 0, controlled shutdown 1,
    log directories 2.
    """
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.log_dirs:
            return encode(record, 2)
        return encode(record, 1 if record.in_controlled_shutdown else 0)
    return encode_at(record, metadata_version)
