"""Instances of frozen dataclasses that don't come from their own constructor."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from wire.entities import maker


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    host: str
    port: int = 9092


@dataclass(frozen=True, kw_only=True)
class WithoutSlots:
    host: str


def test_what_is_made_is_an_instance_like_any_other() -> None:
    made = maker(Place)("here", 1)
    assert type(made) is Place
    assert made == Place(host="here", port=1)
    assert hash(made) == hash(Place(host="here", port=1))
    assert repr(made) == repr(Place(host="here", port=1))
    assert replace(made, port=2) == Place(host="here", port=2)
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(FrozenInstanceError):
        made.port = 3


def test_values_of_all_fields_are_needed() -> None:
    with pytest.raises(TypeError):
        maker(Place)("here")


def test_a_class_of_another_layout_is_refused_at_once() -> None:
    with pytest.raises(TypeError):
        maker(WithoutSlots)
