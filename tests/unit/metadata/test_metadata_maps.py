"""Keys in order, found in steps."""

from operator import neg

from hypothesis import given
from hypothesis import strategies as st

from metadata.maps import Map, in_order


@given(st.sets(st.integers()), st.integers(1, 9), st.booleans())
def test_the_order_is_that_of_sorted(keys: set[int], at_once: int, backwards: bool) -> None:
    key = neg if backwards else None
    found = list(in_order(Map(dict.fromkeys(keys)), key=key, at_once=at_once))
    steps = -(-len(keys) // at_once)
    assert found == [None] * steps + sorted(keys, key=key)


def test_no_step_looks_at_more_keys_than_was_said() -> None:
    drawn = [0]

    def keys():
        for number in range(1_000):
            drawn[0] += 1
            yield number

    before = 0
    for found in in_order(keys(), at_once=10):
        assert drawn[0] - before <= 10
        before = drawn[0]
        if found is not None:
            break
    assert drawn[0] == 1_000
