"""A quorum of processes that changes while topics are created: nothing acknowledged is lost."""

import shutil
import threading

import pytest
from dynamic_quorum import (
    Node,
    controllers,
    ours,
    picture,
    remove_itself_and_crash,
    replicas_of,
)
from waiting import wait_until

from admin.client import AdminClient
from pykraft.ports import free_ports
from wire.errors import KafkaError

pytestmark = pytest.mark.cluster

LONGEST_S = 10.0


class Creator(threading.Thread):
    """Creates one topic after the other; `created` are those that were acknowledged."""

    def __init__(self, doors):
        super().__init__(name="creator")
        self._admin = AdminClient([one.admin for one in doors], timeout_ms=int(LONGEST_S * 1000))
        self._over = threading.Event()
        self.created = []
        self.failures = []

    def run(self):
        number = 0
        while not self._over.is_set():
            number += 1
            try:
                self._admin.create_topic(f"topic-{number}", 1, 1)
            except KafkaError as error:
                if error.code.name == "topic_already_exists":
                    continue  # its answer got lost with a leader
                self.failures.append(str(error))
            else:
                self.created.append(f"topic-{number}")

    def end(self):
        self._over.set()
        self.join(60)
        self._admin.close()


def broker(path, bootstrap):
    port, metrics = free_ports(2)
    return Node(
        path,
        11,
        {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(bootstrap),
            "broker.heartbeat.interval.ms": 200,
            "pykraft.metrics.listener": f"127.0.0.1:{metrics}",
        },
    )


def wait_for(door, *, voters, observers=()):
    """Until the leader shows these; its id."""
    expected = [replicas_of(voters), replicas_of(observers)]

    def shown():
        seen = picture(door)
        brokerless = [one for one in seen[2] if one[0] != 11]
        return [seen[1], brokerless] == expected and seen[0]

    return wait_until(shown, f"voters and observers {expected}", 30, 0.1)


def grow(creator):
    """Returns when ten more topics were created."""
    enough = len(creator.created) + 10
    wait_until(lambda: len(creator.created) >= enough, f"{enough} topics", 30)


@pytest.mark.ci
def test_controllers_come_go_and_lose_a_disk_while_topics_are_created(tmp_path):
    with controllers(tmp_path, 4) as made:
        one, two, three, four = made
        one.format("--standalone")
        for other in (two, three, four):
            other.format("--no-initial-controllers")
        eleven = broker(tmp_path, [two.address, three.address])
        eleven.format()
        creator = Creator(made)
        try:
            for node in (one, two, three, eleven):
                node.start()
            wait_for(one, voters=[one], observers=[two, three])
            ours(["quorum", "add-voter", "2", "--admin", one.admin])
            ours(["quorum", "add-voter", "3", "--admin", two.admin])
            assert wait_for(two, voters=[one, two, three]) == 1
            creator.start()
            grow(creator)
            four.start()
            wait_for(two, voters=[one, two, three], observers=[four])
            ours(["quorum", "add-voter", "4", "--admin", two.admin])
            ours(["quorum", "remove-voter", "1", "--admin", two.admin])
            assert wait_for(two, voters=[two, three, four], observers=[one]) != 1
            one.stop()
            grow(creator)
            three.kill()
            grow(creator)
            lost = three.directory
            shutil.rmtree(three.data)
            three.format("--no-initial-controllers")
            three.start()
            former = [replicas_of([two, four])[0], (3, lost), replicas_of([two, four])[1]]
            wait_until(
                lambda: picture(two)[1] == former and replicas_of([three])[0] in picture(two)[2],
                "the new disk's controller is an observer, its former self a voter",
                30,
            )
            ours(["quorum", "remove-voter", "3", "--admin", two.admin])
            ours(["quorum", "add-voter", "3", "--admin", two.admin])
            grow(creator)
        finally:
            creator.end()
            eleven.stop()
        assert not creator.failures
        assert picture(two)[1] == replicas_of([two, three, four])
        with AdminClient([three.admin], timeout_ms=10_000) as admin:
            kept = dict.fromkeys(admin.list_topics())
        assert [name for name in creator.created if name not in kept] == []


def test_a_leader_that_removed_itself_and_crashed_is_elected_once_more(tmp_path):
    """It alone has the latest log. It hands that on, late, and is no voter any more."""
    with controllers(tmp_path, 2) as (one, two):
        one.format("--standalone")
        two.format("--no-initial-controllers")
        one.start()
        two.start()
        wait_for(one, voters=[one], observers=[two])
        ours(["quorum", "add-voter", "2", "--admin", one.admin])
        assert wait_for(two, voters=[one, two]) == 1
        remove_itself_and_crash(one, two)
        one.start()
        assert wait_for(two, voters=[two], observers=[one]) == 2
