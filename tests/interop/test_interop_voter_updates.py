"""UpdateRaftVoter: JVM Kafka's leader and ours answer the same request with the same error."""

import asyncio
from uuid import UUID

import kafka_jvm
import pytest
from dynamic_quorum import CLUSTER_ID, picture, replicas_of
from test_interop_membership import JVM, OURS, quorum
from waiting import wait_until

from net.client import Connection
from wire import uuids
from wire.apis import ApiKey
from wire.errors import ErrorCode as E
from wire.messages import fill
from world.real import real_env

pytestmark = [pytest.mark.interop, pytest.mark.ci]

NOBODY_LISTENS = ("CONTROLLER", "127.0.0.1", 1)
# What differs from the truth in an update of voter 2, in this order; and what is said to it.
CASES = [
    ({"cluster_id": "another"}, E.inconsistent_cluster_id),
    ({"cluster_id": None}, E.none),
    ({"epochs_on": -1}, E.fenced_leader_epoch),
    ({"epochs_on": 1}, E.unknown_leader_epoch),
    ({}, E.none),
    ({"voter_id": 9}, E.voter_not_found),
    ({"voter_id": -1}, E.invalid_request),
    ({"voter_directory_id": UUID(int=12345)}, E.voter_not_found),
    ({"voter_directory_id": UUID(int=0)}, E.invalid_request),
    ({"levels": (2, 3)}, E.invalid_request),
    ({"levels": (0, 0)}, E.invalid_request),
    ({"listeners": ()}, E.invalid_request),
    ({"listeners": (("OTHER", "127.0.0.1", 1),)}, E.invalid_request),
    ({"voter_id": 9, "levels": (2, 3)}, E.invalid_request),
    ({"voter_id": 9, "listeners": ()}, E.invalid_request),
    ({"levels": (0, 2)}, E.none),
    # Taken on trust by both, as the range above.
    ({"listeners": (NOBODY_LISTENS,)}, E.none),
]


async def update(leader, voter, epoch, **differing):
    """The answer of `leader` to an update of `voter`, which says the truth but for `differing`."""
    host, port = leader.address.split(":")
    own_host, own_port = voter.address.split(":")
    said = {
        "cluster_id": CLUSTER_ID,
        "epochs_on": 0,
        "voter_id": voter.id,
        "voter_directory_id": uuids.from_text(voter.directory),
        "levels": (0, 1),
        "listeners": (("CONTROLLER", own_host, int(own_port)),),
        **differing,
    }
    low, high = said["levels"]

    def build(version, module):
        listeners = tuple(
            module.Listener(name=name, host=at, port=port) for name, at, port in said["listeners"]
        )
        levels = module.KRaftVersionFeature(min_supported_version=low, max_supported_version=high)
        own = {"listeners": listeners, "k_raft_version_feature": levels}
        return fill(
            module.UpdateRaftVoterRequest,
            **said | own,
            current_leader_epoch=epoch + said["epochs_on"],
        )

    connection = await Connection.connect(
        real_env(1), host, int(port), client_id="test", timeout_ms=2000
    )
    try:
        return await connection.call(ApiKey.UPDATE_RAFT_VOTER, build, 5000)
    finally:
        connection.close()


async def answers(leader, voter):
    """What is said to each of the cases; asked again while the last update isn't committed."""
    # An epoch before all is refused with the present one.
    epoch = (await update(leader, voter, 0)).current_leader.leader_epoch
    found = []
    for differing, _ in CASES:
        for _ in range(100):
            said = await update(leader, voter, epoch, **differing)
            if said.error_code is not E.request_timed_out:
                break
            await asyncio.sleep(0.1)
        found.append((differing, said.error_code))
    return found


@pytest.mark.parametrize("leads", [JVM, OURS])
def test_updates_of_a_voter_are_refused_or_taken_as_by_kafka(leads, tmp_path):
    with quorum(tmp_path, 2, **{"controller.quorum.auto.join.enable": "true"}) as (one, two):
        one.format(leads, "--standalone", version=kafka_jvm.NEWEST_VERSION)
        two.format(OURS, "--no-initial-controllers")
        one.start(leads, version=kafka_jvm.NEWEST_VERSION)
        two.start(OURS)
        wait_until(
            lambda: picture(two)[:2] == (1, replicas_of([one, two])),
            "two voters, the first of them leads",
            40,
            0.3,
            errors=(AssertionError,),
        )
        assert asyncio.run(answers(one, two)) == CASES
