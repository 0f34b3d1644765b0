"""What of a log's history there is: gaps, offsets that aren't a batch's own."""

import itertools
from pathlib import Path
from uuid import UUID

from audit_logs import LogWriter
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from metadata.image import EMPTY
from metadata.records import NoOpRecord, TopicRecord
from spark_audit.coverage import Coverage, Skipped, coverage, in_order, summary
from spark_audit.files import open_directory
from spark_audit.scan import Run
from spark_audit.session import in_process

LOG = "00000000000000000000.log"
# Where something is missing, by the corpus's README; c17 has a state, but no record of events.
INCOMPLETE = frozenset(["c13", "c17", "d01", "d02", "d03", "d04", "d05", "d09", "d13"])


def covered(path: Path) -> Coverage:
    return coverage(open_directory(str(path)), in_process)


def test_real_logs_are_complete_and_damaged_ones_are_not(corpus: Path) -> None:
    for folder in sorted(corpus.glob("[cd][0-9][0-9]")):
        node = folder / "n1" if (folder / "n1").is_dir() else folder
        found = covered(node)
        assert found.complete is (folder.name not in INCOMPLETE), folder.name
        assert found.skipped == [] or folder.name in ("d03", "d06")


def test_it_says_where_and_why(corpus: Path) -> None:
    text = summary(covered(corpus / "d03"))
    assert text.startswith(f"INCOMPLETE, missing: offsets 1 to 4, before {LOG} at byte 237; ")
    assert text.endswith(" more")
    found = covered(corpus / "d03")
    assert found.findings[0].to_json()["code"] == "crc-mismatch"
    assert summary(covered(corpus / "d01")).startswith(
        f"INCOMPLETE, missing: what follows {LOG} at byte 156157: truncated-tail"
    )
    assert "offsets 0 to 5150: no snapshot" in summary(covered(corpus / "d13"))
    assert "the log holds none" in summary(covered(corpus / "c13"))


def test_a_batch_at_an_offset_of_another_is_no_part_of_the_history(corpus: Path) -> None:
    found = covered(corpus / "d03")
    assert Skipped(LOG, 804, 902, None) in found.skipped  # at offset 3338, between 9 and 12
    assert found.end_offset == 2280
    twice = covered(corpus / "d06")
    assert twice.complete
    assert twice.skipped == [Skipped(LOG, 78546, None, 1176)]


def test_what_a_trimmed_log_continues_from(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.offset = 40
    (log.directory / LOG).unlink()
    log.roll()
    log.batch(NoOpRecord())
    assert "offsets 0 to 39: no snapshot says" in summary(covered(tmp_path))
    log.offset = 30
    early = log.snapshot(EMPTY)
    assert "offsets 0 to 39" in summary(covered(tmp_path))
    log.offset = 40
    base = log.snapshot(EMPTY.apply(TopicRecord(name="x", topic_id=UUID(int=3))))
    found = covered(tmp_path)
    assert found.complete
    assert found.base is not None
    assert found.base.name == base.name
    base.write_bytes(base.read_bytes()[:-3])
    assert f"{base.name} at byte " in summary(covered(tmp_path))
    early.unlink()


def test_the_snapshot_that_a_quorum_was_set_up_with_is_what_was_before(tmp_path: Path) -> None:
    log = LogWriter(tmp_path)
    log.batch(NoOpRecord())
    assert covered(tmp_path).base is None
    log.snapshot(EMPTY)  # at the end: the log has its own beginning
    assert covered(tmp_path).base is None
    log.offset = 0
    first = log.snapshot(EMPTY)
    base = covered(tmp_path).base
    assert base is not None
    assert base.name == first.name


RUNS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=7)


@given(RUNS)
@examples(300)
def test_the_runs_kept_hold_the_most_offsets(pairs: list[tuple[int, int]]) -> None:
    runs = [Run(LOG, n, start, start + size) for n, (start, size) in enumerate(pairs)]

    def weight(kept: tuple[int, ...]) -> int:
        return sum(runs[n].end - runs[n].start for n in kept)

    def rises(kept: tuple[int, ...]) -> bool:
        return all(runs[a].end <= runs[b].end for a, b in itertools.pairwise(kept))

    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(len(runs)), size) for size in range(len(runs) + 1)
    )
    kept = tuple(in_order(runs))
    assert rises(kept)
    assert weight(kept) == max(weight(one) for one in subsets if rises(one))
