"""The linearizability search against a naive one, and with faults planted."""

from itertools import combinations, permutations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from simulation.models.linear import Operation, Undecided, linearizable


def write(value):
    return lambda state: (value,)


def read(value):
    return lambda state: (state,) if state == value else ()


def swap(old, new):
    return lambda state: (new,) if state == old else ()


def naive(operations, initial):
    """Every order of the required operations and of any of the others."""
    required = [o for o in operations if o.returned is not None]
    optional = [o for o in operations if o.returned is None]
    for count in range(len(optional) + 1):
        for some in combinations(optional, count):
            for order in permutations([*required, *some]):
                if _timely(order) and _possible(order, initial):
                    return True
    return False


def _timely(order):
    return all(
        later.returned is None or earlier.invoked < later.returned
        for place, earlier in enumerate(order)
        for later in order[place + 1 :]
    )


def _possible(order, initial):
    states = {initial}
    for operation in order:
        states = {after for state in states for after in operation.step(state)}
    return bool(states)


STEPS = [write(1), write(2), read(0), read(1), read(2), swap(0, 1), swap(1, 2), swap(2, 0)]


@st.composite
def histories(draw):
    count = draw(st.integers(0, 6))
    times = draw(st.permutations(range(2 * count)))
    found = []
    for i in range(count):
        begin, end = sorted(times[2 * i : 2 * i + 2])
        returned = None if draw(st.integers(0, 3)) == 0 else end
        found.append(Operation(begin, returned, draw(st.sampled_from(STEPS))))
    return found


@examples(400)
@given(histories())
def test_the_search_agrees_with_the_naive_one(operations):
    assert linearizable(operations, 0) == naive(operations, 0)


def test_a_read_may_not_see_a_value_before_it_is_written():
    assert not linearizable([Operation(1, 2, read(7)), Operation(3, 4, write(7))], 0)


def test_a_read_after_a_write_sees_it():
    assert not linearizable([Operation(1, 2, write(7)), Operation(3, 4, read(0))], 0)
    assert linearizable([Operation(1, 4, write(7)), Operation(2, 3, read(0))], 0)


def test_an_unknown_write_may_come_late_or_never_but_not_twice():
    maybe = Operation(1, None, write(7))
    assert linearizable([maybe, Operation(2, 3, read(0)), Operation(4, 5, read(7))], 0)
    assert linearizable([maybe, Operation(2, 3, read(0)), Operation(4, 5, read(0))], 0)
    lost = [Operation(2, 3, read(7)), Operation(4, 5, write(0)), Operation(6, 7, read(7))]
    assert not linearizable([maybe, *lost], 0)


def test_a_search_that_is_too_long_is_no_pass():
    operations = [Operation(i, 100 + i, write(i)) for i in range(20)]
    operations.append(Operation(150, 151, read(-1)))
    with pytest.raises(Undecided, match="50 configurations"):
        linearizable(operations, 0, configurations_max=50)
