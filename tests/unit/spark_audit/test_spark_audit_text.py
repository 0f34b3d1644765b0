"""What the audit commands print for a person, on documents made without Spark."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from audit_logs import LogWriter

from metadata.records import NoOpRecord
from pykraft import audit_cli
from spark_audit.replay import Limit
from spark_audit.scan import join
from spark_audit.session import in_process
from spark_audit.side_files import check_quorum_state
from spark_audit.state import state_at
from spark_audit.verify import verify


def verify_text(*paths: Path) -> str:
    return "\n".join(audit_cli._verify_lines(verify([str(path) for path in paths], in_process)))


def test_a_wiped_log_is_not_called_sound(corpus: Path, tmp_path: Path) -> None:
    text = verify_text(corpus / "c13")
    assert text.startswith(f"{corpus / 'c13'}: EMPTY, so there is nothing to judge; 0 records")
    assert "sound" not in text
    assert "quorum-state-unreadable: quorum-state: the file is empty" in text
    assert "Expecting value" not in text
    log = LogWriter(tmp_path)
    log.batch(NoOpRecord())
    assert ": sound; 1 records" in verify_text(tmp_path)
    assert ": sound; 0 records" in verify_text(corpus / "c17")  # its snapshots are something


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "is empty"), ("\0\0\n", "nothing but zeros"), ("{", "is not JSON; it begins with '{'"),
     ("[]", "names no leaderEpoch"), ('{"leaderEpoch": "x"}', "leaderEpoch is 'x', not a number")],
)  # fmt: skip
def test_a_quorum_state_that_cant_be_read(text: str, words: str) -> None:
    (finding,) = check_quorum_state(text, join([]))
    assert finding.code == "quorum-state-unreadable"
    assert words in finding.detail


def test_a_state_of_nothing(corpus: Path) -> None:
    document = state_at(str(corpus / "c13"), in_process, Limit())
    line = audit_cli._state_line(document, limited=False)
    assert line.startswith("not one record could be read: this is the state of an empty log")
    assert "INCOMPLETE" in line
    assert "no record up to there" in audit_cli._state_line(document, limited=True)


def test_configs_of_a_state_are_of_named_resources() -> None:
    state = {"configs": {"2:orders": {"a": "1"}, "4:": {"b": "2"}, "99:x": {}}, "topics": {}}
    shown = audit_cli._named_configs(state)
    assert list(shown["configs"]) == ["topic:orders", "broker:(default)", "99:x"]
    assert list(state["configs"]) == ["2:orders", "4:", "99:x"]


def event(kind: str, **fields: Any) -> dict[str, Any]:
    names = ("topic", "partition", "broker_id", "name", "before", "after")
    row = dict.fromkeys(names) | {"offset": 7, "epoch": 1, "timestamp": 0, "event": kind}
    return row | fields


@pytest.mark.parametrize(
    ("row", "subject"),
    [
        (event("quorum-leader", after="3"), "quorum"),
        (event("config-set", name="2:orders retention.ms", topic="orders"),
         "topic:orders retention.ms"),
        (event("config-removed", name="4: min.insync.replicas"),
         "broker:(default) min.insync.replicas"),
        (event("isr-shrink", topic="orders", partition=3), "orders-3"),
        (event("broker-fenced", broker_id=4), "broker 4"),
        (event("topic-created", topic="2:odd", name="2:odd"), "2:odd"),
        (event("elr-cleared"), "all topics"),
        (event("elr-cleared", topic="orders"), "orders"),
    ],
)  # fmt: skip
def test_an_event_has_a_subject(row: dict[str, Any], subject: str) -> None:
    assert audit_cli._subject(row) == subject


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    table = audit_cli._events_table([event("quorum-leader", timestamp=1 << 62)])
    assert str(1 << 62) in table.splitlines()[1]


@pytest.mark.parametrize("command", ["verify", "state", "timeline"])
def test_a_wrong_path_is_told_before_anything_heavy_is_imported(command: str) -> None:
    code = (
        "import sys\nfrom pykraft.__main__ import main\n"
        f"sys.argv = ['pykraft', 'audit', '{command}', '/no/such/place']\n"
        "try:\n    code = main()\nexcept SystemExit as error:\n    code = error.code\n"
        "heavy = ('numpy', 'pandas', 'pyarrow', 'pyspark')\n"
        "print(code, [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1 []"
    assert done.stderr == "pykraft: /no/such/place: no such directory\n"
