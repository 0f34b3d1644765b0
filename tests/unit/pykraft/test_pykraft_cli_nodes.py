"""Controllers and brokers that join and leave: what is asked of whom, and what is said."""

import json

import pytest
from command_lines import ID

from pykraft import cli
from pykraft.cli import door, quorum
from raft.voters import nothing_committed
from wire.errors import ErrorCode, KafkaError


def test_a_voter_is_never_looked_for_among_the_observers():
    class Known:
        def describe_quorum(self):
            voters = [{"id": 2, "directory": "old", "lag_ms": 0}]
            return {"voters": voters, "observers": [{"id": 3, "directory": "new", "lag_ms": 0}]}

        def describe_cluster(self):
            return {"brokers": [], "controllers": []}

    assert quorum._directory_of(Known(), 3, "observers") == "new"
    assert quorum._directory_of(Known(), 2, "voters") == "old"
    with pytest.raises(KafkaError, match=r"DUPLICATE_VOTER: 2 is a voter already.* old"):
        quorum._directory_of(Known(), 2, "observers")
    with pytest.raises(cli.CommandError, match=r"none of the observers \(3\) has id 7"):
        quorum._directory_of(Known(), 7, "observers")


def test_a_broker_is_no_candidate_for_a_voter(monkeypatch, capsys):
    """12 is one of both roles, 14 is down, 15 a controller that has not registered."""

    class Cluster(Leader):
        def describe_quorum(self):
            observers = [{"id": n, "directory": ID, "lag_ms": 0} for n in (11, 12, 13, 15)]
            return {"voters": [], "observers": observers}

        def describe_cluster(self):
            controller = {"id": 12, "endpoints": [("CONTROLLER", "h", 1, 0)]}
            return {"brokers": [{"id": n} for n in (11, 12, 13, 14)], "controllers": [controller]}

    monkeypatch.setattr(door, "client", lambda options: Cluster())
    for node_id, told in {
        11: "node 11 has registered as a broker, not as a controller, and only",
        4: "none of the observers (12, 15; brokers: 11, 13) has id 4\n",
        14: "(12, 15; brokers: 11, 13) has id 14, which has registered as a broker, not",
        15: "controller 15 has not registered: name its --endpoint",
    }.items():
        assert cli.main(["quorum", "add-voter", str(node_id)]) == 1
        assert told in capsys.readouterr().err
    assert cli.main(["quorum", "add-voter", "12"]) == 0


class Leader:
    """A client of a leader that refuses changes of the voters, each time as `refusals` say next."""

    def __init__(self, *refusals):
        self.refusals = list(refusals)
        self.left_ms = []

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def add_voter(self, node_id, directory, endpoints, *, timeout_ms):
        self.left_ms.append(timeout_ms)
        if self.refusals:
            raise self.refusals.pop(0)

    def remove_voter(self, node_id, directory, *, timeout_ms):
        self.add_voter(node_id, directory, {}, timeout_ms=timeout_ms)


def test_a_new_leader_may_not_have_heard_of_a_controller_yet(monkeypatch, capsys):
    """Of one that has registered it will; of another there is nothing to wait for."""

    class New(Leader):
        asked = 0

        def describe_quorum(self):
            self.asked += 1
            known = [{"id": 4, "directory": ID, "lag_ms": 0}] if self.asked > 2 else []
            return {"voters": [], "observers": known}

        def describe_cluster(self):
            controller = {"id": 4, "endpoints": [("CONTROLLER", "h", 1, 0)]}
            return {"brokers": [], "controllers": [controller, {**controller, "id": 5}]}

    leader = New()
    monkeypatch.setattr(door, "client", lambda options: leader)
    assert cli.main(["quorum", "add-voter", "4"]) == 0
    assert (leader.asked, len(leader.left_ms)) == (3, 1)
    assert cli.main(["quorum", "add-voter", "5", "--timeout", "0.4"]) == 1
    assert "none of the observers (4) has id 5" in capsys.readouterr().err
    assert leader.asked > 4
    leader.asked = 2
    assert cli.main(["quorum", "add-voter", "6"]) == 1
    assert leader.asked == 3


NEW_LEADER = KafkaError(ErrorCode.request_timed_out, nothing_committed(7))
VOTER = ("4", "--directory", ID)
CHANGES = [
    ["quorum", "add-voter", *VOTER, "--endpoint", "CONTROLLER=h:1"],
    ["quorum", "remove-voter", *VOTER],
]


@pytest.mark.parametrize("arguments", CHANGES, ids=lambda one: one[1])
def test_a_leader_that_has_just_been_elected_is_asked_again(monkeypatch, capsys, arguments):
    leader = Leader(NEW_LEADER, NEW_LEADER)
    monkeypatch.setattr(door, "client", lambda options: leader)
    assert cli.main(arguments) == 0
    assert len(leader.left_ms) == 3
    assert 30_000 == leader.left_ms[0] > leader.left_ms[1] > leader.left_ms[2]
    # For no longer than the command has.
    leader.refusals = [NEW_LEADER] * 100
    assert cli.main([*arguments, "--timeout", "0.5"]) == 1
    assert len(leader.refusals) > 90
    assert "REQUEST_TIMED_OUT: the leader has committed nothing of" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", CHANGES, ids=lambda one: one[1])
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.request_timed_out, "another change of the voters is under way"),
        (ErrorCode.request_timed_out, f"no answer: {nothing_committed(7)}"),
        (ErrorCode.request_timed_out, f"{nothing_committed(7)}: and more"),
        (ErrorCode.request_timed_out, ""),
        (ErrorCode.network_exception, nothing_committed(7)),
    ],
)
def test_a_change_of_the_voters_that_may_have_begun_is_not_asked_for_again(
    monkeypatch, arguments, code, message
):
    leader = Leader(KafkaError(code, message))
    monkeypatch.setattr(door, "client", lambda options: leader)
    assert cli.main(arguments) == 1
    assert len(leader.left_ms) == 1


class TwoBrokers:
    """A client of a cluster with an active broker, 1, and a fenced one, 2."""

    def __enter__(self):
        return self

    def __exit__(self, *_): ...

    def describe_cluster(self):
        return {"brokers": [{"id": 1, "fenced": False}, {"id": 2, "fenced": True}]}

    def unregister_broker(self, id_): ...


def test_who_unregisters_an_active_broker_is_told_what_that_means(capsys, monkeypatch):
    monkeypatch.setattr(door, "client", lambda options: TwoBrokers())
    told = {}
    for id_ in (1, 2):
        assert cli.main(["brokers", "unregister", str(id_)]) == 0
        told[id_] = capsys.readouterr().out
        assert cli.main(["brokers", "unregister", str(id_), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document == {"id": id_, "unregistered": True, "was_active": id_ == 1}
    assert "until its process is started again" in told[1]
    assert told[2] == "broker 2 is forgotten\n"
