"""The benchmarks' own arithmetic and words: spreads, percentiles, ratios, names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import bench
from benchmarks import report, stats
from benchmarks.measures import Taken
from benchmarks.servers import ONE, SIX
from rich.console import Console


def result(ours: list[float], theirs: list[float] | None, better: str) -> stats.Result:
    peer = stats.spread(theirs) if theirs else None
    return stats.Result(
        "produce/one", "MB/s", better, stats.spread(ours), "peer" if peer else None, peer
    )


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_a_spread_holds_every_value(values: list[float]) -> None:
    one = stats.spread(values)
    assert one.low <= one.median <= one.high
    assert all(one.low <= value <= one.high for value in values)


def test_no_runs_are_no_spread() -> None:
    with pytest.raises(ValueError):
        stats.spread([])


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300), st.integers(1, 100))
def test_percentile_is_the_nearest_rank(values: list[int], percent: int) -> None:
    found = stats.percentile(values, percent)
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_percentiles_out_of_range_are_refused(percent: float) -> None:
    with pytest.raises(ValueError):
        stats.percentile([1.0], percent)


@pytest.mark.parametrize(
    ("ours", "theirs", "better", "ratio", "verdict"),
    [
        ([200.0], [100.0], stats.HIGHER, 2.0, "won"),
        ([50.0], [100.0], stats.HIGHER, 0.5, "lost"),
        ([50.0], [100.0], stats.LOWER, 0.5, "won"),
        ([200.0], [100.0], stats.LOWER, 2.0, "lost"),
        ([102.0], [100.0], stats.LOWER, 1.02, "even"),
        ([1.0, 9.0, 2.0], [1.0, 1.0, 50.0], stats.HIGHER, 2.0, "won"),
        ([1.0], [0.0], stats.LOWER, None, ""),
        ([1.0], None, stats.LOWER, None, ""),
    ],
)
def test_lost_is_said_as_plainly_as_won(
    ours: list[float], theirs: list[float] | None, better: str, ratio: float | None, verdict: str
) -> None:
    one = result(ours, theirs, better)
    assert one.ratio == ratio
    assert one.verdict == verdict
    document = one.document({"machine": {}})
    assert document["value"] == one.ours.median
    assert document["ratio"] == ratio
    assert document["runs"] == len(ours)
    assert {"name", "unit", "peer", "peer_value", "cpu_s"} <= document.keys()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.0312, "0.031"), (1.234, "1.23"), (56.78, "56.8"), (123456.7, "123,457")],
)
def test_numbers_have_three_digits_that_matter(value: float, text: str) -> None:
    assert stats.number(value) == text


def test_ranges_are_shown() -> None:
    assert stats.range_text(None) == "–"
    assert stats.range_text(stats.spread([5.0])) == "5.00"
    assert stats.range_text(stats.spread([30.0, 10.0, 20.0])) == "20.0 (10.0–30.0)"


def test_the_table_has_every_figure() -> None:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(
            report.table([result([2.0], [1.0], stats.LOWER), result([2.0], None, stats.LOWER)])
        )
    text = captured.get()
    assert "lost" in text
    assert text.count("produce/one") == 2


def test_names_are_unique_and_found() -> None:
    names = bench.all_names()
    assert len(names) == len(dict.fromkeys(names))
    wanted = bench.wanted(["produce/one", "latency/*/p99", "start/3+3"])
    assert wanted("produce/one/acks=1/16K/cpu")
    assert wanted("latency/3+3/acks=all/p99")
    assert wanted("start/3+3")
    assert not wanted("produce/3+3/acks=1/16K")
    assert not wanted("latency/one/acks=1/p50")
    assert bench.wanted([])("anything")


@pytest.mark.parametrize("words", [["nothing"], ["--runs", "0"], ["--vs", "redpanda"]])
def test_what_is_no_benchmark_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.parse(words)
    assert ended.value.code == 2


def test_values_are_kept_by_side() -> None:
    taken = Taken()
    for value in (1.0, 3.0, 2.0):
        taken.add("ours", "pykraft", start=value, cpu=value / 10)
    alone = taken.result("start/one", "start", "s", stats.LOWER, "cpu")
    assert (alone.peer, alone.theirs) == ("goal", stats.spread([1.5]))
    assert alone.verdict == "lost"
    taken.add("theirs", "JVM Kafka", start=10.0)
    compared = taken.result("start/one", "start", "s", stats.LOWER)
    assert (compared.peer, compared.ratio) == ("JVM Kafka", 0.2)
    assert compared.note == "goal 1.5 s, missed"


def test_shapes_replicate_as_far_as_they_can() -> None:
    assert (ONE.replicas, ONE.partitions) == (1, 1)
    assert (SIX.replicas, SIX.partitions) == (3, 3)
