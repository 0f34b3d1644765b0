"""Real nodes on a network that is cut, late and lossy; what their clients saw is judged.

The tests of this file share one cluster and leave it whole. Each has clients at work meanwhile,
whose calls are held against the models of the simulation when all has healed.
"""

import os
import time

import pytest
from judged_clients import clients_at_work
from network_faults import LATE, Mischief, wait
from networked_cluster import networked_cluster
from one_history import assert_metadata_agrees, assert_replicas_agree
from waiting import wait_until

from admin.client import AdminClient
from simulation.history import Outcome
from wire.errors import ErrorCode, KafkaError

pytestmark = pytest.mark.cluster

CI = os.environ.get("CI") == "true"
FETCH_TIMEOUT_S = 2.0
# Twice controller.quorum.election.timeout.ms, the longest wait for votes.
ELECTION_S = 2.0
CHECK_QUORUM_S = 1.5 * FETCH_TIMEOUT_S
SESSION_S = 3.0
LAG_S = 3.0
DOOR_S = 1.5
BUSY_S = 2.0
"""For a machine that has other things to do."""
SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": str(int(LAG_S * 1000))}
MIX_S = 35.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with networked_cluster(tmp_path_factory.mktemp("network"), settings=SETTINGS) as cluster:
        print(f"\nthe network: {cluster.network.kind}")
        yield cluster
        print(f"\npackets: {cluster.network.counts()}")


@pytest.fixture(autouse=True)
def healed(cluster):
    """Whole before each test, also after one that failed half-way."""
    cluster.heal()
    cluster.wait_until_whole([])


def all_but(ids, *left_out):
    return [id_ for id_ in ids if id_ not in left_out]


def cut_off(cluster, node, targets, lost):
    if lost == "what it hears":
        cluster.network.cut(targets, [node], both=False)
    else:
        cluster.network.cut([node], targets, both=lost == "both ways")


ONE_WAY = [pytest.param(way, marks=pytest.mark.ci) for way in ("what it says", "what it hears")]
WAYS = ["both ways", *ONE_WAY]


@pytest.mark.parametrize("lost", WAYS)
def test_the_majority_goes_on_without_a_cut_off_active_controller(cluster, lost, record_property):
    active = cluster.active_among(cluster.controllers)
    others = all_but(cluster.ids(), active)
    with clients_at_work(cluster, f"active-{len(lost)}") as clients:
        before = cluster.quorum()
        begin = time.monotonic()
        cut_off(cluster, active, others, lost)
        chosen = cluster.active_among(all_but(cluster.controllers, active))
        failover_s = time.monotonic() - begin
        with AdminClient(cluster.node(chosen).admin) as admin:
            admin.create_topic(f"{clients.name}-meanwhile", 1, 3)
        # Whether it still thinks that it is active or not, it must not say that there is none.
        with AdminClient(cluster.node(active).admin, timeout_ms=int(DOOR_S * 1000)) as admin:
            with pytest.raises(KafkaError) as refused:
                admin.describe_topics([f"{clients.name}-meanwhile"], linearizable=True)
            assert refused.value.code is not ErrorCode.unknown_topic_or_partition
        wait_until(lambda: cluster.claims_to_be_active(active) is False, "it steps down")
        stepped_down_s = time.monotonic() - begin
        clients.wait_for_more(10)
        cluster.network.heal()
        cluster.wait_until_whole([clients.careful, clients.loose])
        after = cluster.quorum()
    print(f"\n{lost}: {failover_s:.2f} s to another, it stepped down after {stepped_down_s:.2f} s")
    record_property("failover_s", failover_s)
    assert failover_s < FETCH_TIMEOUT_S + ELECTION_S + BUSY_S
    # It was asked for a read before it was looked at.
    assert stepped_down_s < CHECK_QUORUM_S + DOOR_S + BUSY_S
    # It came back as a follower: nobody was elected for its sake.
    assert after["leader"] == chosen
    assert after["epoch"] > before["epoch"]
    assert {voter["id"] for voter in after["voters"]} == set(cluster.controllers)


def test_a_voter_that_comes_and_goes_moves_nobody(cluster):
    before = cluster.quorum()
    others = all_but(cluster.controllers, before["leader"])
    rest = all_but(cluster.ids(), others[0])
    longer = FETCH_TIMEOUT_S + 0.7
    faults = [("both ways", rest, 0.4), ("both ways", rest, longer)]
    if CI:
        faults += [("what it hears", rest, longer), ("what it says", rest, longer)]
    # It alone misses the leader: the other voter, which it does reach, still hears it.
    faults += [("both ways", [before["leader"]], longer + 1)]
    with clients_at_work(cluster, "flapping") as clients:
        for lost, targets, seconds in faults:
            cut_off(cluster, others[0], targets, lost)
            wait(seconds)
            cluster.network.heal()
            clients.wait_for_more(3)
        if CI:
            cluster.process(others[0]).suspend()
            wait(longer)
            cluster.resume()
            clients.wait_for_more(3)
        cluster.kill(others[0])
        cluster.start(others[0])
        cluster.wait_until_whole([clients.careful])
        after = cluster.quorum()
    assert (after["leader"], after["epoch"]) == (before["leader"], before["epoch"])


def away(cluster, node, how, seconds):
    """The node is cut off, paused or killed for so long, and then back."""
    if how == "cut":
        cluster.network.cut([node], all_but(cluster.ids(), node))
    elif how == "paused":
        cluster.process(node).suspend()
    else:
        cluster.kill(node)
    wait(seconds)
    cluster.heal()


@pytest.mark.ci
def test_a_voter_that_returns_ten_times_in_a_row_moves_nobody(cluster):
    """However it was away, and whether it stood in elections meanwhile or not."""
    before = cluster.quorum()
    (flapping, _) = all_but(cluster.controllers, before["leader"])
    with clients_at_work(cluster, "returning") as clients:
        for number in range(10):
            how = ("cut", "paused", "killed")[number % 3]
            away(cluster, flapping, how, 0.4 if number % 2 else FETCH_TIMEOUT_S + 0.7)
            clients.wait_for_more(3)
            now = cluster.quorum()
            assert (now["leader"], now["epoch"]) == (before["leader"], before["epoch"]), how
        cluster.wait_until_whole([clients.careful])
        after = cluster.quorum()
    assert (after["leader"], after["epoch"]) == (before["leader"], before["epoch"])


def test_a_broker_that_clients_reach_and_controllers_do_not_is_fenced(cluster):
    with clients_at_work(cluster, "fenced") as clients:
        victim = cluster.partitions(clients.careful)[0]["leader"]
        begin = time.monotonic()
        cluster.network.cut([victim], cluster.controllers)

        def others_lead():
            partitions = cluster.partitions(clients.careful).values()
            return all(one["leader"] not in (-1, victim) for one in partitions)

        wait_until(others_lead, "others lead all partitions", SESSION_S + 10, 0.1)
        took_s = time.monotonic() - begin
        with cluster.admin() as admin:
            brokers = admin.describe_cluster(linearizable=True)["brokers"]
        assert [one["id"] for one in brokers if one["fenced"]] == [victim]
        since = len(clients.history.calls)
        clients.wait_for_more(10)

        def takes_what_it_cannot_commit():
            """It thinks that it leads still."""
            call = clients.produce_at(victim)
            assert call.outcome is not Outcome.OK, str(call)
            return call.result == ErrorCode.request_timed_out.name

        wait_until(takes_what_it_cannot_commit, "it waits in vain for followers")
        done = clients.finished("produce", since)
        careful = [call for call in done if call.client in ("idem", "all")]
        assert careful
        assert [str(call) for call in careful if call.args["node"] == victim] == []
    print(f"\nothers lead after {took_s:.2f} s")
    assert took_s < SESSION_S + 1 + BUSY_S


def test_a_leader_without_its_followers_acknowledges_nothing_alone(cluster):
    with clients_at_work(cluster, "alone") as clients:
        victim = cluster.partitions(clients.careful)[0]["leader"]
        others = all_but(cluster.brokers, victim)
        cluster.network.cut([victim], others)

        def settled():
            for one in cluster.partitions(clients.careful).values():
                expected = [victim] if one["leader"] == victim else others
                if sorted(one["isr"]) != expected:
                    return False
            return True

        wait_until(settled, "the ISRs are those that reach each other", 3 * LAG_S + 10, 0.1)
        assert cluster.partitions(clients.careful)[0]["leader"] == victim
        since = len(clients.history.calls)

        def refused():
            calls = clients.finished("produce", since, Outcome.FAILED)
            return [call for call in calls if call.result == "not_enough_replicas"]

        wait_until(refused, "the lonely leader refuses", 20, 0.1)
        wait_until(lambda: clients.finished("produce", since), "others acknowledge", 20, 0.1)
        done = clients.finished("produce", since)
        careful = [call for call in done if call.client in ("idem", "all")]
        assert [str(call) for call in careful if call.args["node"] == victim] == []


@pytest.mark.ci
def test_late_and_lossy_links_leave_it_available(cluster):
    before = cluster.quorum()
    with clients_at_work(cluster, "late") as clients:
        machines = cluster.network.machines
        cluster.network.shape(machines, machines, LATE)
        clients.wait_for_more(20)
        created = []
        with cluster.admin(10) as admin:
            for number in range(3):
                begin = time.monotonic()
                admin.create_topic(f"late-{number}", 3, 3)
                created.append(round(time.monotonic() - begin, 2))
        clients.wait_for_more(20)
        calls = clients.finished("create", 0)
        lost = cluster.network.counts().get("lost", 0)
        after = cluster.quorum(20)
    print(f"\nthree topics in {created} s, {lost} packets lost")
    assert lost
    assert calls
    assert after["epoch"] <= before["epoch"] + 1


@pytest.mark.ci
def test_any_mix_of_faults_contradicts_nothing_that_clients_saw(cluster):
    seed = int(os.environ.get("PYKRAFT_NETWORK_SEED", "15"))
    with clients_at_work(cluster, "mix", seed) as clients:
        mischief = Mischief(cluster, seed, SESSION_S + 0.8)
        try:
            mischief.run(MIX_S)
        finally:
            print(f"\nseed {seed}:", *mischief.story, sep="\n")
    print(dict(mischief.done), clients.counts())
    assert len(mischief.done) >= 4


def test_nothing_forked(cluster):
    """The last test of this file: the cluster is stopped."""
    pytest.importorskip("pandas")
    cluster.down()
    assert_metadata_agrees(cluster)
    assert assert_replicas_agree(cluster, ("*-careful", "*-loose"))
