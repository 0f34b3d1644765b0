"""Tells the directory of another topic's partition from that of a metadata log.

All of Kafka's logs look alike; but a metadata log's records are framed as no client's are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spark_audit.files import METADATA_DIRECTORY, AuditError, LogDirectory
from wire import partition_metadata
from wire.errors import DamagedFile
from wire.uuids import METADATA_TOPIC_ID, to_text

if TYPE_CHECKING:
    from spark_audit.scan import LogScan  # numpy's import takes longer than the rest here

PARTITION_FILE = "partition.metadata"
# What any topic may hold beside its data, and what no schema knows.
_ANYWHERE = re.compile(r"^(EndTxnMarker|Unknown\d+):")


def refuse_other_topic(directory: LogDirectory) -> None:
    """AuditError where the directory itself says that it is another topic's: to be asked before
    anything is read."""
    named = directory.files.name == METADATA_DIRECTORY
    if named or PARTITION_FILE not in directory.side_files:
        return
    try:
        topic_id = partition_metadata.decode(directory.files.read(PARTITION_FILE), PARTITION_FILE)
    except DamagedFile:
        return  # the records tell
    if topic_id != METADATA_TOPIC_ID:
        raise AuditError(
            f"{directory.path}: no metadata log: by its {PARTITION_FILE} it is a partition of the"
            f" topic with id {to_text(topic_id)}; the metadata log is in {METADATA_DIRECTORY}"
        )


def refuse_foreign(directory: LogDirectory, scan: LogScan) -> None:
    """AuditError where not one record is of a kind that a metadata log has.

    A directory of the right name or with snapshots is one, however damaged its records are.
    """
    refuse_other_topic(directory)
    if directory.files.name == METADATA_DIRECTORY or directory.snapshots or not scan.records:
        return
    if all(_ANYWHERE.match(kind) for kind in scan.counts):
        raise AuditError(
            f"{directory.path}: no metadata log: of its {scan.records} records not one is a"
            f" metadata record; the metadata log is in {METADATA_DIRECTORY}"
        )
