from __future__ import annotations

import pytest
from subscriptions import subscription

from wire.consumer_protocol import read_assignment, read_subscription, write_assignment
from wire.errors import DecodeError


def test_subscriptions() -> None:
    metadata = subscription("a", "b", owned=(3, 1), rack_id="r")
    assert read_subscription(metadata) == (3, ("a", "b"), (("t", (3, 1)),), "r")
    # What a newer consumer writes begins the same.
    assert read_subscription(b"\0\x09" + metadata[2:] + b"more") == read_subscription(metadata)
    for wrong in (b"\0", b"\xff\xff", metadata[:-3], b"\0\1\x7f\xff\xff\xff"):
        with pytest.raises(DecodeError):
            read_subscription(wrong)


def test_assignments() -> None:
    assert read_assignment(b"") == ({}, b"")
    for version in range(5):
        assert read_assignment(write_assignment(version, {"t": (1, 2)})).partitions == {"t": (1, 2)}
