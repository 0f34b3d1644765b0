"""`audit verify`: is a metadata log sound, and do the nodes' logs agree?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from metadata.state import digest, state_json
from spark_audit.between import Prints, compare_logs, prints_of
from spark_audit.files import LogDirectory, open_directory
from spark_audit.findings import Finding, has_errors
from spark_audit.foreign import refuse_foreign
from spark_audit.history import replay_log
from spark_audit.live import settled
from spark_audit.replay import Compared, Limit, Outcome
from spark_audit.scan import SLICE_BYTES, LogScan, scan_log
from spark_audit.session import Runner
from spark_audit.side_files import check_side_files
from spark_audit.snapshots import Snapshot, read_snapshot

Progress = Callable[[str], None]


@dataclass(slots=True)
class DirectoryAudit:
    """All that is known of one directory after an audit."""

    directory: LogDirectory
    scan: LogScan
    snapshots: list[Snapshot]
    outcome: Outcome
    findings: list[Finding]
    state: dict[str, Any]
    digest: str


def audit_directory(
    directory: LogDirectory,
    run: Runner,
    *,
    limit: Limit | None = None,
    slice_bytes: int = SLICE_BYTES,
    progress: Progress = lambda text: None,
) -> DirectoryAudit:
    """Scans, replays and checks one directory; `run` spreads the work."""
    progress(f"{directory.path}: reading {len(directory.segments)} segments")
    scan = scan_log(directory, run, slice_bytes)
    refuse_foreign(directory, scan)
    progress(f"{directory.path}: reading {len(directory.snapshots)} snapshots")
    snapshots = [read_snapshot(directory.files, file) for file in directory.snapshots]
    progress(f"{directory.path}: replaying {scan.records} records")
    outcome = replay_log(directory, scan, snapshots, run, limit or Limit())
    findings = [*scan.findings, *check_side_files(directory, scan)]
    for snapshot in snapshots:
        findings += snapshot.findings
    findings += outcome.findings
    findings += _snapshot_findings(snapshots, outcome, scan)
    findings += outcome.tally.findings()
    state = state_json(outcome.image)
    return DirectoryAudit(directory, scan, snapshots, outcome, findings, state, digest(state))


def _snapshot_findings(snapshots: list[Snapshot], outcome: Outcome, scan: LogScan) -> list[Finding]:
    findings = []
    compared = {one.file: one for one in outcome.compared}
    for snapshot in snapshots:
        one = compared.get(snapshot.file.name)
        if one is None or one.differences is None:
            if _is_base(snapshot, outcome):
                continue
            end = snapshot.file.end_offset
            detail = f"replay never stands at offset {end} (log ends at {scan.end_offset})"
            findings.append(Finding("snapshot-not-compared", snapshot.file.name, detail))
        else:
            findings += _against_log(snapshot, one)
    return findings


def _is_base(snapshot: Snapshot, outcome: Outcome) -> bool:
    """Whether the replay went on from this snapshot, or it is the one that a log begins with."""
    resumed = (f.file for f in outcome.findings if f.code == "resumed-from-snapshot")
    return snapshot.file.end_offset == 0 or snapshot.file.name in resumed


def _against_log(snapshot: Snapshot, one: Compared) -> list[Finding]:
    """A compared snapshot's state, timestamp and epoch must be those of the log at its end."""
    findings = []
    name, end = snapshot.file.name, snapshot.file.end_offset
    if one.differences:
        shown = "; ".join(one.differences[:5])
        more = "; …" if len(one.differences) > 5 else ""
        detail = f"{len(one.differences)} differences from replay: {shown}{more}"
        findings.append(Finding("snapshot-mismatch", name, detail))
    if snapshot.timestamp is not None and one.log_timestamp not in (None, snapshot.timestamp):
        detail = (
            f"its header says {snapshot.timestamp}, the batch with offset {end - 1}"
            f" is of {one.log_timestamp}"
        )
        findings.append(Finding("snapshot-timestamp", name, detail))
    if one.log_epoch not in (None, snapshot.file.epoch):
        detail = f"epoch {snapshot.file.epoch} by its name, {one.log_epoch} in the log"
        findings.append(Finding("snapshot-epoch", name, detail, None, end - 1, one.log_epoch))
    return findings


def directory_json(audit: DirectoryAudit) -> dict[str, Any]:
    """One entry of `directories` in the document."""
    scan, directory = audit.scan, audit.directory
    compared = {one.file: one for one in audit.outcome.compared}
    snapshots = []
    for snapshot in audit.snapshots:
        one = compared.get(snapshot.file.name)
        differences = None if one is None else one.differences
        entry = {
            "file": snapshot.file.name,
            "records": snapshot.records,
            "compared": differences is not None,
            "differences": len(differences or ()),
        }
        snapshots.append(entry)
    return {
        "path": directory.path,
        "cluster_id": directory.cluster_id,
        "node_id": directory.node_id,
        "records": scan.records,
        "batches": scan.batches,
        "segments": len(directory.segments),
        "start_offset": scan.start_offset,
        "end_offset": scan.end_offset,
        "last_epoch": scan.last_epoch,
        "counts": scan.counts,
        "snapshots": snapshots,
        "state_digest": audit.digest,
        "findings": [finding.to_json() for finding in audit.findings],
    }


def verify(
    paths: list[str],
    run: Runner,
    *,
    slice_bytes: int = SLICE_BYTES,
    progress: Progress = lambda text: None,
) -> dict[str, Any]:
    """The document of `audit verify --json`. AuditError for a path that holds no log."""

    def read(directory: LogDirectory) -> tuple[DirectoryAudit, Prints | None]:
        audit = audit_directory(directory, run, slice_bytes=slice_bytes, progress=progress)
        return audit, prints_of(directory, run) if len(paths) > 1 else None

    for path in paths:
        open_directory(path)  # what is no log at all is refused before the first takes its time
    pairs = [settled(path, read, progress) for path in paths]
    audits = [audit for audit, _ in pairs]
    logs = [(audit.directory, prints) for audit, prints in pairs if prints is not None]
    between, found = compare_logs(logs)
    for number, finding in found:
        audits[number].findings.append(finding)
    return {
        "sound": not any(has_errors(audit.findings) for audit in audits),
        "directories": [directory_json(audit) for audit in audits],
        "between": between,
    }
