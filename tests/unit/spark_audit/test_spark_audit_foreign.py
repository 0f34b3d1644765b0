"""The directory of another topic's partition is refused, a damaged metadata log is not."""

from pathlib import Path
from uuid import UUID

import pytest
from audit_logs import LogWriter

from metadata.records import NoOpRecord
from spark_audit.files import AuditError
from spark_audit.replay import Limit
from spark_audit.session import in_process
from spark_audit.state import state_at
from spark_audit.verify import verify
from wire import partition_metadata
from wire.batch import build_batch
from wire.control import encode_end_txn_marker

LOG = "00000000000000000000.log"


def other_topic(folder: Path, *, told: bool) -> Path:
    """The directory of a topic's partition; `told`: with the file that says so."""
    folder.mkdir()
    data = build_batch([(5, b"k%d" % n, b'{"n": %d}' % n, ()) for n in range(50)])
    data += build_batch([(5, None, None, ()), (5, b"k", b"", ())], base_offset=50)
    data += build_batch([(6, *encode_end_txn_marker(True, 1), ())], base_offset=52, control=True)
    (folder / LOG).write_bytes(data)
    if told:
        (folder / "partition.metadata").write_bytes(partition_metadata.encode(UUID(int=77)))
    return folder


@pytest.mark.parametrize("told", [True, False])
def test_the_log_of_another_topic_is_refused_in_one_line(tmp_path: Path, told: bool) -> None:
    path = str(other_topic(tmp_path / "orders-0", told=told))
    words = "topic with id AAAAAAAAAAAAAAAAAAAATQ" if told else "of its 53 records not one is"
    for audit in (
        lambda: verify([path], in_process),
        lambda: state_at(path, in_process, Limit()),
    ):
        with pytest.raises(AuditError, match=f"^{path}: no metadata log: .*{words}") as refused:
            audit()
        assert "\n" not in str(refused.value)


def test_a_metadata_log_without_a_readable_record_is_still_judged(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.values([b"\x07what is this"])
    found = verify([str(tmp_path)], in_process)
    assert [f["code"] for f in found["directories"][0]["findings"]] == ["undecodable"]
    moved = log.directory.rename(tmp_path / "copy-0")
    log.directory = moved
    log.roll()
    log.batch(NoOpRecord())
    assert verify([str(moved)], in_process)["sound"] is False
    (moved / "partition.metadata").write_bytes(b"nonsense")
    assert verify([str(moved)], in_process)["sound"] is False
