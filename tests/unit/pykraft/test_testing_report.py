"""Lines of node logs as a failing test shows them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pykraft.testing.report import readable


def test_a_line_for_people():
    line = {
        "node_id": 1,
        "broker_epoch": 4,
        "event": "unfenced",
        "level": "info",
        "timestamp": "2026-11-28T09:11:49.819583Z",
    }
    assert readable(json.dumps(line)) == "09:11:49.819 info     unfenced broker_epoch=4"


def test_what_is_no_log_entry_stays_as_it_is():
    for line in (
        "Traceback (most recent call last):",
        "",
        "{}",
        "[]",
        "null",
        '{"event": 1}',
        '""',
    ):
        assert readable(line) == line


@given(st.none() | st.integers() | st.text(max_size=20) | st.lists(st.text(max_size=3), max_size=2))
def test_no_line_is_too_odd(value):
    for name in ("event", "level", "timestamp"):
        entry = {"event": "e", "level": "info", "timestamp": "2026-11-28T09:11:49Z", name: value}
        assert isinstance(readable(json.dumps(entry)), str)
