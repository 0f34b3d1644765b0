"""`audit state`: the cluster as its log tells it, now, at an offset or at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from spark_audit.files import LogDirectory
from spark_audit.findings import UNREADABLE, Finding
from spark_audit.live import settled
from spark_audit.replay import Limit
from spark_audit.session import Runner
from spark_audit.verify import DirectoryAudit, Progress, audit_directory
from wire.numbers import integer


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from a number or ISO 8601 (UTC where it names no zone).

    Raises ValueError.
    """
    number = integer(text)
    if number is not None:
        return number
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def state_at(
    path: str, run: Runner, limit: Limit, progress: Progress = lambda text: None
) -> dict[str, Any]:
    """The document of `audit state --json`. AuditError for a path that holds no log."""

    def read(directory: LogDirectory) -> DirectoryAudit:
        return audit_directory(directory, run, limit=limit, progress=progress)

    audit = settled(path, read, progress)
    outcome = audit.outcome
    return {
        "cluster_id": audit.directory.cluster_id,
        "directory": audit.directory.path,
        "last_offset": outcome.last_offset,
        "last_epoch": outcome.last_epoch,
        "last_timestamp": outcome.last_timestamp,
        "from_snapshot": outcome.from_snapshot,
        "complete": is_complete(audit, limit),
        "state": audit.state,
        "digest": audit.digest,
    }


def is_complete(audit: DirectoryAudit, limit: Limit) -> bool:
    """Whether every record within the limit is in the state, or in the snapshot it starts from."""
    outcome, scan = audit.outcome, audit.scan
    if outcome.missing:
        return False
    if outcome.last_offset is None:
        # Nothing was read: right only where nothing is within the limit.
        nothing_asked = limit.offset is not None and limit.offset <= 0
        before_all = limit.timestamp is not None and scan.start_offset == 0
        return nothing_asked or before_all
    last = outcome.last_offset
    end = scan.end_offset or 0
    if limit.offset is not None and last < limit.offset - 1 and end >= limit.offset:
        return False
    base = _base_end(audit)
    return not any(
        finding.file.endswith(".log")
        and finding.code in UNREADABLE
        and _counts(finding, audit, limit, base)
        for finding in audit.findings
    )


def _base_end(audit: DirectoryAudit) -> int:
    name = audit.outcome.from_snapshot
    return max((s.file.end_offset for s in audit.snapshots if s.file.name == name), default=0)


def _counts(finding: Finding, audit: DirectoryAudit, limit: Limit, base: int) -> bool:
    """Whether unreadable bytes hide a record of the state. Where the log goes on behind them
    without a gap they held none; records missing there are a hole, which replay sees."""
    if finding.code == "zero-tail":
        return False
    if finding.code in ("undecodable", "bad-records"):
        offset, stamp = finding.offset or 0, finding.timestamp or 0
        within = (limit.offset is None or offset < limit.offset) and (
            limit.timestamp is None or stamp <= limit.timestamp
        )
        return within and offset >= base
    if "resumes at" in finding.detail or base > (audit.scan.end_offset or 0):
        return False
    return _reaches_end(audit, limit)


def _reaches_end(audit: DirectoryAudit, limit: Limit) -> bool:
    """Whether the limit lies behind the last readable record, where a torn tail matters."""
    scan = audit.scan
    if limit.offset is not None:
        return scan.end_offset is None or limit.offset > scan.end_offset
    if limit.timestamp is not None:
        return scan.last_timestamp is None or limit.timestamp >= scan.last_timestamp
    return True
