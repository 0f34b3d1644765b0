"""`pykraft audit verify|state|timeline`: the command line of the audits.

Everything heavy (pyspark, numpy) is imported when a command runs, not before.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pykraft.cli import values
from spark_audit.files import AuditError
from wire.numbers import whole_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN_FINDINGS = 50


def add_commands(subparsers: Any) -> None:
    """Adds verify, state and timeline to the subparsers of `audit`.

    Each parser's `run` default takes the parsed arguments and returns the exit code.
    """
    verify = subparsers.add_parser(
        "verify",
        help="is this metadata log sound? exit 1 on damage",
        description="Checks metadata logs and their snapshots, and that several nodes' agree.",
    )
    verify.add_argument("directories", metavar="DIR", type=values.filled, nargs="+", help=_DIR)
    _json_option(verify)
    _master_option(verify)
    verify.set_defaults(run=run_verify)

    state = subparsers.add_parser(
        "state",
        help="the cluster as its metadata log tells it",
        description="Replays a metadata log; exit 1 where records are missing or undecodable.",
    )
    state.add_argument("directory", metavar="DIR", type=values.filled, help=_DIR)
    when = state.add_mutually_exclusive_group()
    when.add_argument(
        "--at-offset", type=values.offset, metavar="N", help="from all records below offset N"
    )
    when.add_argument(
        "--at-time",
        type=_time,
        metavar="T",
        help=f"from all records up to T: {_TIME}",
    )
    _json_option(state)
    _master_option(state)
    state.set_defaults(run=run_state)

    timeline = subparsers.add_parser(
        "timeline",
        help="what happened: leaders, ISRs, brokers, topics, configs, features",
        description="Lists the events of a metadata log in the order of their offsets; exit 1"
        " where records are missing or undecodable.",
    )
    timeline.add_argument("directory", metavar="DIR", type=values.filled, help=_DIR)
    timeline.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="events of this topic, its partitions and its configs alone; may be repeated",
    )
    timeline.add_argument("--since", type=_time, metavar="T", help="events from T on; T as below")
    timeline.add_argument("--until", type=_time, metavar="T", help=f"events up to T: {_TIME}")
    timeline.add_argument("--format", choices=("table", "json", "parquet"), default="table")
    timeline.add_argument("--json", action="store_const", const="json", dest="format")
    timeline.add_argument(
        "--out", metavar="PATH", type=values.filled, help="write there instead of to the terminal"
    )
    _master_option(timeline)
    timeline.set_defaults(run=run_timeline)


_DIR = "a __cluster_metadata-0 directory, or its parent"
_TIME = "milliseconds since 1970, or ISO 8601 (UTC without a zone)"


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _master_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", metavar="URL", type=values.filled, help="Spark master (default: this machine)"
    )


def _time(text: str) -> int:
    from spark_audit.state import parse_time

    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither milliseconds since 1970 nor an ISO 8601 time"
        ) from error


def run_verify(args: argparse.Namespace) -> int:
    """`audit verify`: 0 where no error was found, else 1."""
    return _guarded(_verify, args)


def run_state(args: argparse.Namespace) -> int:
    """`audit state`: 0 where the state is complete, else 1."""
    return _guarded(_state, args)


def run_timeline(args: argparse.Namespace) -> int:
    """`audit timeline`: 0 where no record is missing, else 1."""
    return _guarded(_timeline, args)


def _verify(args: argparse.Namespace) -> int:
    with _spark(args, args.directories) as (spark, progress):
        from spark_audit.session import on_spark
        from spark_audit.verify import verify

        document = verify(args.directories, on_spark(spark), progress=progress)
        if args.json:
            _print_json(document)
        else:
            for line in _verify_lines(document):
                print(line)
        return 0 if document["sound"] else 1


def _state(args: argparse.Namespace) -> int:
    with _spark(args, [args.directory]) as (spark, progress):
        from spark_audit.replay import Limit
        from spark_audit.session import on_spark
        from spark_audit.state import state_at

        limit = Limit(offset=args.at_offset, timestamp=args.at_time)
        document = state_at(args.directory, on_spark(spark), limit, progress)
        if args.json:
            _print_json(document)
        else:
            _print_json(_named_configs(document["state"]), indent=2)
            print(_state_line(document, limited=limit != Limit()), file=sys.stderr)
        return 0 if document["complete"] else 1


def _timeline(args: argparse.Namespace) -> int:
    if args.format == "parquet" and not args.out:
        raise AuditError("--format parquet needs --out, a path that doesn't exist yet")
    with _spark(args, [args.directory]) as (spark, progress):
        from spark_audit.coverage import summary
        from spark_audit.timeline import Wanted, held, rows_of, take_timeline

        wanted = Wanted(args.topic, args.since, args.until)
        if args.format == "parquet":
            found, events = take_timeline(spark, args.directory, wanted, held, progress)
            events.write.parquet(args.out)
        else:
            found, rows = take_timeline(spark, args.directory, wanted, rows_of, progress)
            document = {"directory": args.directory, **found.to_json(), "events": rows}
            text = json.dumps(document) if args.format == "json" else _events_table(rows)
            _write(text, args.out)
            for name in sorted(set(args.topic) - {row["topic"] for row in rows}):
                print(f"{args.directory}: no event of a topic {name!r}", file=sys.stderr)
        if not found.complete:
            print(f"{args.directory}: {summary(found)}", file=sys.stderr)
        return 0 if found.complete else 1


def _guarded(command: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Runs a command; an expected error becomes one line on stderr and exit code 1."""
    try:
        return command(args)
    except BrokenPipeError:
        raise
    except AuditError as error:
        print(f"pykraft: {error}", file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"pykraft: {where}{error.strerror or error}", file=sys.stderr)
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        from spark_audit.session import one_line

        print(f"pykraft: Spark: {one_line(error)}", file=sys.stderr)
    return 1


@contextmanager
def _spark(
    args: argparse.Namespace, directories: list[str]
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """A session for one command; paths are checked first, since Spark takes seconds to start."""
    from spark_audit.session import check_installed, start

    check_installed()
    from spark_audit.files import open_directory
    from spark_audit.foreign import refuse_other_topic

    for directory in directories:
        refuse_other_topic(open_directory(directory))
    with _progress() as progress:
        progress("starting Spark")
        spark = start(args.master, quiet=True)
        try:
            yield spark, progress
        finally:
            spark.stop()


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Says what is going on, on stderr where that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("") as status:
        yield status.update


def _print_json(document: Any, indent: int | None = None) -> None:
    print(json.dumps(document, indent=indent))


def _write(text: str, out: str | None) -> None:
    if out is None:
        print(text)
        return
    with open(out, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def _verify_lines(document: dict[str, Any]) -> Iterator[str]:
    for entry in document["directories"]:
        findings = entry["findings"]
        errors = sum(finding["level"] == "error" for finding in findings)
        verdict = "sound" if not errors else f"{errors} errors"
        if not errors and not entry["records"] and not entry["snapshots"]:
            verdict = "EMPTY, so there is nothing to judge"
        offsets = (
            "no offsets"
            if entry["end_offset"] is None
            else f"offsets {entry['start_offset']} to {entry['end_offset'] - 1}"
        )
        yield (
            f"{entry['path']}: {verdict}; {entry['records']} records in {entry['batches']} batches,"
            f" {offsets}, {len(entry['snapshots'])} snapshots"
            f" ({sum(one['compared'] for one in entry['snapshots'])} compared)"
        )
        for finding in findings[:_SHOWN_FINDINGS]:
            place = "" if finding["position"] is None else f" at byte {finding['position']}"
            yield (
                f"  {finding['level']:5} {finding['code']}: {finding['file']}{place}:"
                f" {finding['detail']}"
            )
        if len(findings) > _SHOWN_FINDINGS:
            yield f"  … and {len(findings) - _SHOWN_FINDINGS} more (--json lists all)"
    for entry in document["between"]:
        verdict = "DIVERGED: " if entry["diverged"] else ""
        yield f"{entry['a']} and {entry['b']}: {verdict}{entry['detail']}"


def _state_line(document: dict[str, Any], *, limited: bool) -> str:
    note = "" if document["complete"] else "; INCOMPLETE: records are missing or undecodable"
    if document["last_offset"] is None and limited:
        return f"the log has no record up to there: this is the state before it began{note}"
    if document["last_offset"] is None:
        return f"not one record could be read: this is the state of an empty log{note}"
    return (
        f"up to offset {document['last_offset']}, epoch {document['last_epoch']},"
        f" digest {document['digest'][:12]}{note}"
    )


def _resource(key: str) -> str:
    """A resource as STATE and events write it (`2:orders`, and what follows), for a person."""
    from spark_audit.settings import CONFIG_RESOURCES

    number, _, name = key.partition(":")
    code = whole_number(number)
    kind = number if code is None else CONFIG_RESOURCES.get(code, number)
    return f"{kind}:{'(default)' if not name or name[0] == ' ' else ''}{name}"


def _named_configs(state: dict[str, Any]) -> dict[str, Any]:
    configs = {_resource(key): values for key, values in state["configs"].items()}
    return {**state, "configs": configs}


def _time_text(timestamp: int) -> str:
    from datetime import UTC, datetime

    try:
        return f"{datetime.fromtimestamp(timestamp / 1000, UTC):%F %T.%f}"[:-3]
    except (ValueError, OverflowError, OSError):
        return str(timestamp)  # no year that a calendar has


# What events are about whose rows name nothing.
_SUBJECTS = {"quorum-leader": "quorum", "zk-migration": "cluster", "elr-cleared": "all topics"}


def _subject(row: dict[str, Any]) -> str:
    subject: str = row["topic"] or _SUBJECTS.get(row["event"], "")
    if row["partition"] is not None:
        subject += f"-{row['partition']}"
    if row["broker_id"] is not None:
        subject = f"broker {row['broker_id']}"
    if row["name"]:
        is_config = row["event"] in ("config-set", "config-removed")
        subject = _resource(row["name"]) if is_config else row["name"]
    return subject


def _events_table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        change = " -> ".join(text for text in (row["before"], row["after"]) if text is not None)
        when = _time_text(row["timestamp"])
        lines.append((str(row["offset"]), when, row["event"], _subject(row), change))
    heads = ("OFFSET", "TIME (UTC)", "EVENT", "SUBJECT", "CHANGE")
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    shown = []
    for line in (heads, *lines):
        cells = [
            cell.rjust(width) if number == 0 else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(cells).rstrip())
    return "\n".join(shown)
