"""The shape of a cluster for tests: what is refused, and with which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykraft.testing.shape import NODES_MAX, Shape

counts = st.integers(0, 5)
names = st.sampled_from(["broker.rack", "num.partitions", "min.insync.replicas"])
settings = st.dictionaries(names, st.one_of(st.integers(), st.booleans(), st.text(max_size=5)))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"brokers": 0}, "brokers=0: at least 1 is needed, clients talk to brokers"),
        ({"brokers": -1}, f"brokers=-1: 0 to {NODES_MAX} are allowed"),
        ({"controllers": 51}, f"controllers=51: 0 to {NODES_MAX} are allowed"),
        ({"brokers": "3"}, "brokers='3': must be a whole number"),
        ({"brokers": True}, "brokers=True: must be a whole number"),
        ({"controllers": 1.0}, "controllers=1.0: must be a whole number"),
        ({"properties": ["a=b"]}, r"properties=\['a=b'\]: must map names to values"),
        ({"properties": {"a": None}}, "properties: 'a': None: must be a name and a text or"),
        ({"properties": {1: "a"}}, "properties: 1: 'a': must be a name"),
        ({"node_properties": {2: {}}}, "node_properties: no node 2; the nodes are 1$"),
        (
            {"brokers": 2, "controllers": 1, "node_properties": {3: {}}},
            "no node 3; the nodes are 1, 2, 101$",
        ),
        ({"node_properties": {1: "a"}}, r"node_properties\[1\]='a': must map"),
    ],
)
def test_a_bad_shape_says_what_is_allowed(arguments, said):
    with pytest.raises(ValueError, match=said):
        Shape(**arguments)


def test_settings_are_texts_as_in_a_file_and_a_nodes_own_win():
    shape = Shape(
        brokers=2,
        properties={"auto.create.topics.enable": False, "num.partitions": 3},
        node_properties={2: {"num.partitions": 4, "broker.rack": "b"}},
    )
    assert shape.settings() == {
        1: {"auto.create.topics.enable": "false", "num.partitions": "3"},
        2: {"auto.create.topics.enable": "false", "broker.rack": "b", "num.partitions": "4"},
    }


def test_it_is_told_shortly():
    assert str(Shape()) == "1"
    assert str(Shape(3)) == "3"
    assert str(Shape(2, 3)) == "3+2"
    assert str(Shape(properties={"num.partitions": 3, "a": True})) == "1,a=true,num.partitions=3"


@given(
    st.tuples(counts.filter(bool), counts, settings),
    st.tuples(counts.filter(bool), counts, settings),
)
def test_equal_keys_mean_equal_nodes(one, other):
    """Tests of one shape share a cluster, so no two shapes that differ may have one key."""
    one, other = Shape(*one), Shape(*other)
    same = one.node_ids == other.node_ids and one.settings() == other.settings()
    assert (one.key == other.key) == same
