"""Dynamic membership beside JVM Kafka: each starts from what the other has formatted, joins the
other's quorum and is removed from it; Kafka's quorum tool gives our picture of it."""

import json
import shutil

import jvm_node
import kafka_jvm
import pytest
from dynamic_quorum import (
    CLUSTER_ID,
    Controller,
    controllers,
    ours,
    picture,
    remove_itself_and_crash,
    replicas_of,
)
from waiting import wait_until

pytestmark = pytest.mark.interop

VERSION = kafka_jvm.NEWEST_VERSION
OURS, JVM = "ours", "jvm"
TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = ("eligible.leader.replicas.version", "group.version", "transaction.version")


class Either(Controller):
    """A controller of either kind, formatted by either kind's tool."""

    def format(self, kind, *options, version=VERSION):
        options = ("--release-version", "4.0-IV3", *options)
        if kind == OURS:
            super().format(*options)
            return
        arguments = ["format", "--config", str(self.config), "--cluster-id", CLUSTER_ID, *options]
        for feature in FEATURES:
            arguments += ["--feature", f"{feature}=0"]
        kafka_jvm.run_java("kafka.tools.StorageTool", arguments, kafka_jvm.classpath(version))

    def start(self, kind, *, version=VERSION):
        if kind == OURS:
            super().start()
            return
        path = kafka_jvm.classpath(version)
        self.launch(
            [kafka_jvm.java(), *jvm_node.JVM_OPTIONS, "-cp", path, "kafka.Kafka", str(self.config)]
        )


def quorum(path, count, **more):
    return controllers(path, count, kind=Either, **more)


@pytest.fixture(scope="module")
def tools():
    with kafka_jvm.Tools(VERSION) as made:
        yield made


def tool(tools, asked, *arguments):
    code, said = tools.run(TOOL, "--bootstrap-controller", asked.address, *arguments)
    assert code == 0, said
    return said


def their_picture(tools, asked):
    """The same, as Kafka's tool shows it."""
    said = tool(tools, asked, "describe", "--status")
    status = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)

    def replicas(name):
        return sorted((one["id"], one["directoryId"]) for one in json.loads(status[name]))

    return int(status["LeaderId"]), replicas("CurrentVoters"), replicas("CurrentObservers")


def wait_for(tools, asked, door, *, voters, observers=()):
    """Until both show these voters and observers; returns the leader's id."""
    expected = [replicas_of(voters), replicas_of(observers)]

    def as_expected():
        shown = picture(door)
        return list(shown[1:]) == expected and shown

    # Kafka's client asks the first leader that it hears of until its time is over, so it is not
    # let loose on a quorum that is just electing another.
    shown = wait_until(as_expected, f"voters and observers {expected}", 30, 0.2)
    wait_until(lambda: their_picture(tools, asked) == picture(door), "the same picture", 30, 0.2)
    return shown[0]


def has_leader(node):
    """Whether a controller of either kind follows, or is, the leader that its disk tells of."""
    stored = node.data / "__cluster_metadata-0" / "quorum-state"
    return stored.exists() and json.loads(stored.read_text())["leaderId"] >= 0


def replication(tools, asked):
    """Kafka's table: (node, directory, end offset, status) a row."""
    said = tool(tools, asked, "describe", "--replication")
    rows = [line.split() for line in said.splitlines()[1:]]
    return {(int(row[0]), row[1]): (int(row[2]), row[-1]) for row in rows}


@pytest.mark.ci
def test_a_jvm_controller_joins_our_quorum_and_replaces_us(tmp_path, tools):
    with quorum(tmp_path, 3) as (one, two, three):
        one.format(OURS, "--standalone")
        two.format(JVM, "--no-initial-controllers")
        three.format(OURS, "--no-initial-controllers")
        one.start(OURS)
        two.start(JVM)
        three.start(OURS)
        wait_for(tools, one, one, voters=[one], observers=[two, three])
        tool(tools, one, "--command-config", two.config, "add-controller")
        wait_for(tools, one, one, voters=[one, two], observers=[three])
        ours(["quorum", "add-voter", "3", "--admin", one.admin])
        assert wait_for(tools, two, three, voters=[one, two, three]) == 1
        rows = replication(tools, one)
        assert {key: status for key, (_, status) in rows.items()} == {
            (1, one.directory): "Leader",
            (2, two.directory): "Follower",
            (3, three.directory): "Follower",
        }
        told = json.loads(ours(["quorum", "describe", "--json", "--admin", three.admin]))
        ends = {one["id"]: one["end_offset"] for one in told["voters"]}
        assert all(abs(end - ends[key[0]]) < 20 for key, (end, _) in rows.items())
        tool(
            tools, two, "remove-controller", "--controller-id", 1,
            "--controller-directory-id", one.directory,
        )  # fmt: skip
        assert wait_for(tools, two, three, voters=[two, three], observers=[one]) in (2, 3)


@pytest.mark.ci
@pytest.mark.parametrize("version", [VERSION, kafka_jvm.DEFAULT_VERSION])
def test_we_join_a_jvm_quorum_and_replace_it(version, tmp_path, tools):
    with quorum(tmp_path, 2) as (one, two):
        one.format(JVM, "--standalone", version=version)
        two.format(OURS, "--no-initial-controllers")
        one.start(JVM, version=version)
        two.start(OURS)
        wait_for(tools, one, two, voters=[one], observers=[two])
        ours(["quorum", "add-voter", "2", "--admin", two.admin])
        assert wait_for(tools, one, two, voters=[one, two]) == 1
        ours(["quorum", "remove-voter", "1", "--admin", two.admin])
        assert wait_for(tools, two, two, voters=[two], observers=[one]) == 2


@pytest.mark.ci
@pytest.mark.parametrize(("leads", "joins"), [(OURS, JVM), (JVM, OURS)])
def test_a_controller_joins_by_itself_and_after_its_disk_was_lost(leads, joins, tmp_path, tools):
    """Auto-join, Kafka's and ours: what it asks of a leader of the other kind."""
    auto = {"controller.quorum.auto.join.enable": "true"}
    with quorum(tmp_path, 3, **auto) as (one, two, three):
        one.format(leads, "--standalone")
        two.format(OURS, "--no-initial-controllers")
        three.format(joins, "--no-initial-controllers")
        one.start(leads)
        two.start(OURS)
        wait_for(tools, one, two, voters=[one, two])
        three.start(joins)
        wait_for(tools, one, two, voters=[one, two, three])
        lost = three.directory
        three.stop()
        shutil.rmtree(three.data)
        three.format(joins, "--no-initial-controllers")
        three.start(joins)
        assert three.directory != lost
        wait_until(
            lambda: picture(two)[1] == sorted((n.id, n.directory) for n in (one, two, three)),
            "the new disk's controller votes in its former self's place",
            40,
            0.3,
        )
        assert their_picture(tools, one)[:2] == picture(two)[:2]


@pytest.mark.parametrize(
    "version", [VERSION, pytest.param(kafka_jvm.DEFAULT_VERSION, marks=pytest.mark.ci)]
)
@pytest.mark.parametrize(
    ("formats", "starts"), [pytest.param(OURS, JVM, marks=pytest.mark.ci), (JVM, OURS)]
)
def test_what_one_has_formatted_the_other_starts(formats, starts, version, tmp_path, tools):
    with quorum(tmp_path, 2) as (one, two):
        one.format(formats, "--standalone", version=version)
        two.format(OURS, "--no-initial-controllers")
        one.start(starts, version=version)
        two.start(OURS)
        assert wait_for(tools, one, two, voters=[one], observers=[two]) == 1
        features = json.loads(ours(["features", "describe", "--json", "--admin", two.admin]))
        assert features["metadata.version"]["finalized"] == 25
        assert features["kraft.version"]["finalized"] == 1


@pytest.mark.ci
def test_initial_controllers_are_those_that_were_named(tmp_path, tools):
    """The same option of both tools, on three nodes of both kinds, begins one quorum."""
    ids = ["MkU3OEVBNTcwNTJENDM2Qg", "NkU3OEVBNTcwNTJENDM2Qw", "OkU3OEVBNTcwNTJENDM2Qw"]
    with quorum(tmp_path, 3) as made:
        named = ",".join(
            f"{one.id}@{one.address}:{id_}" for one, id_ in zip(made, ids, strict=True)
        )
        for one, kind in zip(made, (OURS, JVM, OURS), strict=True):
            one.format(kind, "--initial-controllers", named)
        assert [one.directory for one in made] == ids
        for one, kind in zip(made, (OURS, JVM, OURS), strict=True):
            one.start(kind)
        wait_for(tools, made[0], made[2], voters=made)


@pytest.mark.ci
@pytest.mark.parametrize(("leads", "follows"), [(OURS, JVM), (JVM, OURS)])
def test_a_static_quorum_of_both_kinds_becomes_a_dynamic_one(leads, follows, tmp_path, tools):
    """kraft.version 0 to 1: a leader of either kind knows the directories and the endpoints of
    voters of either kind, and tells them all."""
    ready = {OURS: "pykraft: ready", JVM: "Kafka Server started"}
    with quorum(tmp_path, 3) as made:
        static = ",".join(f"{one.id}@{one.address}" for one in made)
        for one, kind in zip(made, (leads, leads, follows), strict=True):
            with one.config.open("a") as config:
                config.write(f"controller.quorum.voters={static}\n")
            one.format(kind)
        one, two, three = made
        for node in (one, two):
            node.start(leads)
        for node in (one, two):
            wait_until(lambda n=node: ready[leads] in n.log.read_text(), "they run", 40, 0.2)
        # These two have a leader before the third begins; a JVM controller runs without one, too.
        for node in (one, two):
            wait_until(lambda n=node: has_leader(n), "they have a leader", 40, 0.2)
        three.start(follows)
        door = one if leads == OURS else three
        upgrade = ["features", "upgrade", "--feature", "kraft.version=1", "--admin", door.admin]
        # Refused until the leader has heard of every voter's directory.
        wait_until(lambda: ours(upgrade), "kraft.version 1", 40, 0.5, errors=(AssertionError,))
        leader = wait_for(tools, one, door, voters=made)
        assert leader in (1, 2)
        ours(["quorum", "remove-voter", str(leader), "--admin", door.admin])
        gone = made[leader - 1]
        left = [node for node in made if node is not gone]
        assert wait_for(tools, left[0], door, voters=left, observers=[gone]) != leader


@pytest.mark.ci
def test_a_jvm_voter_elects_one_of_ours_that_is_no_voter_any_more(tmp_path, tools):
    """Ours removed itself and crashed, and alone has the latest log: it stands late, and the JVM
    follows it until it has that."""
    with quorum(tmp_path, 2) as (one, two):
        one.format(OURS, "--standalone")
        two.format(JVM, "--no-initial-controllers")
        one.start(OURS)
        two.start(JVM)
        wait_for(tools, one, one, voters=[one], observers=[two])
        tool(tools, one, "--command-config", two.config, "add-controller")
        wait_for(tools, one, one, voters=[one, two])
        remove_itself_and_crash(one, two)
        one.start(OURS)
        assert wait_for(tools, two, one, voters=[two], observers=[one]) == 2
