"""Fault plans and their shrinking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.plan import KINDS, Cast, Fault, draw, from_json, to_json
from simulation.shrink import ddmin

CAST = Cast((101, 102, 103), (1, 2, 3))


def plan(seed, **more):
    return draw(seed, CAST, start_ms=5_000, end_ms=112_000, **more)


@given(st.integers(0, 2**32))
def test_a_plan_is_a_function_of_its_seed_and_survives_json(seed):
    made = plan(seed)
    assert made == plan(seed)
    assert len(made) >= 52
    assert made == sorted(made, key=lambda fault: fault.at_ms)
    assert all(5_000 <= fault.at_ms < 112_000 for fault in made)
    assert from_json(to_json(made)) == made


def test_seeds_have_kinds_of_their_own():
    kinds = [frozenset(fault.kind for fault in plan(seed)) for seed in range(200)]
    assert len(dict.fromkeys(kinds)) > 150
    for kind in KINDS:
        share = sum(kind in some for some in kinds) / len(kinds)
        assert 0.2 < share < 0.99, (kind, share)


def test_kinds_can_be_left_out():
    assert all(f.kind != "member" for seed in range(100) for f in plan(seed, without=("member",)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "a plan is a list"),
        ('[[1, "kill", 2]]', "fault 0"),
        ('[[1, "kill", 2, {}], [1, "tickle", 2, {}]]', "fault 1"),
        ('[["1", "kill", 2, {}]]', "fault 0"),
    ],
)
def test_what_is_no_plan_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        from_json(text)


def test_a_plan_can_be_written_by_hand():
    assert from_json('[[7, "kill", "active", {"down_ms": 5}]]') == [
        Fault(7, "kill", "active", {"down_ms": 5})
    ]


@given(st.sets(st.integers(0, 40), max_size=5))
def test_ddmin_keeps_exactly_what_is_needed(needed):
    runs = []

    def fails(entries):
        runs.append(entries)
        return needed <= {*entries}

    kept = ddmin(list(range(41)), fails)
    assert kept == sorted(needed)
    assert len(runs) <= 200


def test_ddmin_stops_when_its_runs_are_used_up():
    runs = []

    def fails(entries):
        runs.append(entries)
        return {*range(0, 40, 2)} <= {*entries}

    kept = ddmin(list(range(41)), fails, runs_max=10)
    assert len(runs) == 10
    assert {*range(0, 40, 2)} <= {*kept}
