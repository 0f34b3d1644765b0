"""Free ports for a cluster's nodes."""

from __future__ import annotations

import math
import socket

import pytest

from pykraft import ports


def test_ports_differ_lie_in_the_range_and_are_free() -> None:
    found = ports.free_ports(100)
    assert len(dict.fromkeys(found)) == 100
    for port in found:
        assert ports.FIRST <= port < ports.LAST
        with socket.socket() as candidate:
            candidate.bind(("127.0.0.1", port))


def test_every_port_is_tried_once() -> None:
    assert math.gcd(ports.STEP, ports.LAST - ports.FIRST) == 1


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LAST", ports.FIRST + 10)
    with pytest.raises(OSError, match="of 11 ports are free"):
        ports.free_ports(11)
