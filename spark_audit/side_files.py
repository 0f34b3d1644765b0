"""Checks the small files beside a metadata log: leader epochs and quorum state."""

from __future__ import annotations

import json

from spark_audit.files import LogDirectory
from spark_audit.findings import Finding
from spark_audit.scan import LogScan
from wire.numbers import integer

EPOCH_FILE = "leader-epoch-checkpoint"
QUORUM_STATE = "quorum-state"
_SHOWN = 8


def check_side_files(directory: LogDirectory, scan: LogScan) -> list[Finding]:
    """Findings about leader-epoch-checkpoint and quorum-state; none where a file is absent."""
    findings = []
    if EPOCH_FILE in directory.side_files:
        text = directory.files.read(EPOCH_FILE).decode("utf-8", "replace")
        findings += check_epoch_file(text, scan)
    if QUORUM_STATE in directory.side_files:
        text = directory.files.read(QUORUM_STATE).decode("utf-8", "replace")
        findings += check_quorum_state(text, scan)
    return findings


def _rows(text: str) -> list[tuple[int, int]] | str:
    """The rows of a checkpoint file, or what is wrong with it."""
    head, _, rest = text.partition("\n")
    lines = rest.splitlines()
    counted, rows = lines[:1], [line for line in lines[1:] if line]
    if head.strip() != "0" or not counted or counted[0].strip() != str(len(rows)):
        shown = [head, *counted] if counted else [head]
        return f"{shown} for {len(rows)} rows"
    parsed = []
    for row in rows:
        numbers = [integer(part) for part in row.split()]
        if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
            return f"row {row!r} is not an epoch and an offset"
        parsed.append((numbers[0], numbers[1]))
    return parsed


def check_epoch_file(text: str, scan: LogScan) -> list[Finding]:
    """Compares the file's rows with the epochs that the log's batches carry."""
    rows = _rows(text)
    if isinstance(rows, str):
        return [Finding("epoch-file-format", EPOCH_FILE, rows)]
    findings = []
    listed = dict(rows)
    extra = [epoch for epoch in listed if epoch not in scan.epoch_starts]
    if extra:
        detail = f"no batches for epochs {extra[:_SHOWN]}"
        findings.append(Finding("epoch-file-extra", EPOCH_FILE, detail))
    missing = [epoch for epoch in scan.epoch_starts if epoch not in listed]
    if missing:
        detail = f"no row for epochs {missing[:_SHOWN]}"
        findings.append(Finding("epoch-file-behind", EPOCH_FILE, detail))
    for epoch, start in rows:
        seen = scan.epoch_starts.get(epoch)
        if seen is None or seen == start:
            continue
        # Where the log's beginning was trimmed, the first row is moved up to the trimming point.
        if epoch == rows[0][0] and start > seen:
            continue
        # An epoch that began in batches that are gone has its first batch here later.
        if seen > start and (seen == scan.start_offset or scan.unreadable):
            continue
        detail = f"epoch {epoch} starts at {start} by the file, at {seen} in the log"
        findings.append(Finding("epoch-file-mismatch", EPOCH_FILE, detail, None, seen, epoch))
    return findings


def check_quorum_state(text: str, scan: LogScan) -> list[Finding]:
    """The epoch in quorum-state is never below one that the log already holds."""
    epoch = _quorum_epoch(text)
    if isinstance(epoch, str):
        return [Finding("quorum-state-unreadable", QUORUM_STATE, epoch)]
    if scan.last_epoch is not None and epoch < scan.last_epoch:
        detail = f"epoch {epoch} there, {scan.last_epoch} in the log"
        return [Finding("quorum-state-behind", QUORUM_STATE, detail, None, None, scan.last_epoch)]
    return []


def _quorum_epoch(text: str) -> int | str:
    """The leader epoch in a quorum-state file, or what is wrong with the file."""
    if not text.strip("\0 \r\n"):
        return "the file is empty" if not text else "the file holds nothing but zeros or blanks"
    try:
        fields = json.loads(text)
    except ValueError:
        return f"the file is not JSON; it begins with {text[:20]!r}"
    if not isinstance(fields, dict) or "leaderEpoch" not in fields:
        return "the file is JSON, but names no leaderEpoch"
    epoch = fields["leaderEpoch"]
    return epoch if isinstance(epoch, int) else f"leaderEpoch is {epoch!r}, not a number"
