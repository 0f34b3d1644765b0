import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.topic_names import check_topic_name, collision_key, names_with_key
from wire.errors import ErrorCode, KafkaError

LEGAL = "abcXYZ019._-"


@given(st.text(LEGAL, min_size=1, max_size=249).filter(lambda n: n not in (".", "..")))
def test_legal_names_pass(name):
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * 250, "a b", "ä", "a/b", "a\n", "\0", "a" * 9999]
)
def test_bad_names_are_refused_with_the_rule(name):
    with pytest.raises(KafkaError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.invalid_topic_exception
    assert len(refused.value.message) < 600


def test_dots_and_underscores_collide():
    assert collision_key("a.b_c") == collision_key("a_b.c")


@given(st.text("ab._", min_size=1, max_size=8), st.text("ab._", min_size=1, max_size=8))
def test_the_names_with_a_key_are_those_that_collide(name, other):
    names = list(names_with_key(collision_key(name)))
    assert names == sorted(set(names))
    assert name in names
    assert (other in names) == (collision_key(other) == collision_key(name))
