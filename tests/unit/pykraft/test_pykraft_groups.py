"""`pykraft groups` of several groups: each is tried, and none that was dealt with goes untold."""

import asyncio
import json

import pytest

from net.errors import ConnectFailed
from pykraft import cli
from pykraft.broker_client import NobodyAnswers
from pykraft.cli import groups
from wire.errors import ErrorCode, KafkaError


class Client:
    """Deletes groups, but those of `errors`."""

    def __init__(self, errors):
        self.errors = errors
        self.asked = []

    async def delete(self, group):
        self.asked.append(group)
        if group in self.errors:
            raise self.errors[group]


@pytest.fixture
def delete(monkeypatch, capsys):
    """Runs `groups delete --json` of the groups; exit code, document, complaints, who was asked."""

    def run(*names, errors):
        client = Client(errors)
        monkeypatch.setattr(groups, "_asked", lambda _, ask: asyncio.run(ask(client)))
        code = cli.main(["groups", "delete", *names, "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out or "null"), err.splitlines(), client.asked

    return run


IN_USE = KafkaError(ErrorCode.non_empty_group, "b has members")


def test_a_refusal_keeps_nobody_from_the_others(delete):
    done = [{"group": name, "deleted": True} for name in ("a", "c")]
    told = ["pykraft: NON_EMPTY_GROUP: b has members"]
    assert delete("a", "b", "c", "a", errors={"b": IN_USE}) == (1, done, told, ["a", "b", "c"])
    assert delete("a", "c", errors={}) == (0, done, [], ["a", "c"])


def test_a_lone_group_is_shown_as_itself(delete):
    assert delete("a", errors={}) == (0, {"group": "a", "deleted": True}, [], ["a"])
    told = ["pykraft: NON_EMPTY_GROUP: b has members"]
    assert delete("b", errors={"b": IN_USE}) == (1, None, told, ["b"])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NobodyAnswers("h:1: gone"), "pykraft: no Kafka broker answers at h:1: gone"),
        (ConnectFailed("h:1: gone"), "pykraft: h:1: gone"),
    ],
)
def test_brokers_that_go_away_meanwhile_leave_what_was_done_told(delete, error, told):
    done = [{"group": "a", "deleted": True}]
    assert delete("a", "b", "c", errors={"b": error}) == (1, done, [told], ["a", "b"])
