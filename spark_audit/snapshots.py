"""Reads a `.checkpoint` file into an image, with what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from metadata.image import EMPTY, MetadataImage
from metadata.records import UnknownRecord, name_of
from spark_audit.files import Files, SnapshotFile
from spark_audit.findings import UNREADABLE, Finding
from spark_audit.rows import Item, chunks
from spark_audit.scan import finding_of
from spark_audit.walk import walk
from wire.batch import read_header
from wire.control import Control, ControlType, voters_of
from wire.errors import DecodeError
from wire.uuids import ZERO


@dataclass(slots=True)
class Snapshot:
    """A snapshot as read. `whole` says whether it may stand for the log below its end."""

    file: SnapshotFile
    image: MetadataImage = EMPTY
    records: int = 0
    timestamp: int | None = None  # of the last batch it covers, by its header
    findings: list[Finding] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not any(f.code in UNREADABLE for f in self.findings) and self.records > 0

    @property
    def framed(self) -> bool:
        return not any(f.code == "snapshot-unframed" for f in self.findings)


def apply_control(image: MetadataImage, control: Control) -> MetadataImage:
    """What the quorum's own records change in the image: kraft.version and the voters."""
    if control.type == ControlType.KRAFT_VERSION:
        return image._replace(kraft_version=control.entity.k_raft_version)
    if control.type == ControlType.KRAFT_VOTERS:
        voters = voters_of(control.entity)
        pairs = sorted((v.voter_id, v.directory_id or ZERO) for v in voters)
        return image._replace(voters=tuple(pairs))
    return image


def apply_item(image: MetadataImage, item: Item) -> MetadataImage:
    """The image after one decoded record of either kind."""
    return apply_control(image, item) if isinstance(item, Control) else image.apply(item.record)


def read_snapshot(files: Files, file: SnapshotFile) -> Snapshot:
    """Reads a snapshot file; damage in it becomes findings."""
    found = Snapshot(file)
    data = files.read(file.name)
    positions, damages = walk(data)
    found.findings += [finding_of(damage, file.name) for damage in damages]
    for position in positions:
        epoch = read_header(data, position).leader_epoch
        if epoch != file.epoch:
            detail = f"a batch of epoch {epoch} in a snapshot of epoch {file.epoch}"
            found.findings.append(
                Finding("snapshot-epoch", file.name, detail, position, None, epoch)
            )
            break
    image = EMPTY
    first: Any = None
    last: Any = None
    for rows in chunks(file.name, data, positions):
        found.findings += rows.problems
        for row in range(len(rows)):
            try:
                item = rows.decode(row)
            except DecodeError as error:
                found.findings.append(rows.finding("undecodable", row, str(error)))
                continue
            finally:
                found.records += 1
            first, last = first or item, item
            if not isinstance(item, Control) and isinstance(item.record, UnknownRecord):
                detail = f"{name_of(item.api_key)} v{item.version}"
                found.findings.append(rows.finding("unknown-record", row, detail))
            image = apply_item(image, item)
    _check_frame(found, first, last)
    stamp = -1 if found.timestamp is None else found.timestamp
    found.image = image.at(file.end_offset - 1, file.epoch, stamp)
    return found


def _check_frame(found: Snapshot, first: Any, last: Any) -> None:
    head = isinstance(first, Control) and first.type == ControlType.SNAPSHOT_HEADER
    foot = isinstance(last, Control) and last.type == ControlType.SNAPSHOT_FOOTER
    if head:
        found.timestamp = first.entity.last_contained_log_timestamp
        if not isinstance(found.timestamp, int):
            found.timestamp = int(found.timestamp.timestamp() * 1000)
    if not head or not foot:
        detail = "no header or no footer record"
        found.findings.append(Finding("snapshot-unframed", found.file.name, detail))
