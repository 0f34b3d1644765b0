"""What `pykraft storage` formats, and what it says of what may have been meant otherwise."""

import re
import shutil
import uuid
from uuid import UUID

import pytest
from command_lines import DYNAMIC, FORMAT, ID

from pykraft import cli
from pykraft.storage_format import BOOTSTRAP_SNAPSHOT
from raft.voters import ReplicaKey, voter_set_of
from wire import meta_properties, uuids
from wire.batch import decode_records, iter_headers
from wire.control import decode_control, voters_of


def test_a_cluster_id_may_begin_with_a_dash(here, capsys):
    assert cli.main([*FORMAT, "--cluster-id=-abc"]) == 0
    meta = meta_properties.decode((here / "data/meta.properties").read_bytes(), "meta")
    assert meta.cluster_id == "-abc"


def test_format_then_info_then_a_second_format(here, capsys):
    assert cli.main(["storage", "info", "--config", "node.properties"]) == 1
    assert "not formatted" in capsys.readouterr().out
    assert cli.main(["storage", "format", "--config", "node.properties", "--cluster-id", "c"]) == 0
    assert "cluster.id c, metadata.version 25 (4.0-IV3)" in capsys.readouterr().out
    assert cli.main(["storage", "info", "--config", "node.properties"]) == 0
    assert "cluster.id c, node.id 1" in capsys.readouterr().out
    assert cli.main(["storage", "format", "--config", "node.properties"]) == 1
    told = capsys.readouterr().err
    assert (
        f"{here}/data is formatted already (cluster.id c, node.id 1 in its meta.properties)" in told
    )
    (here / "data/meta.properties").write_text("version=7")
    assert cli.main(["storage", "format", "--config", "node.properties"]) == 1
    assert "is formatted already (" in (told := capsys.readouterr().err)
    assert "version '7'" in told


def test_no_directory_is_formatted_where_another_cannot_be(here, capsys):
    text = (here / "node.properties").read_text()
    (here / "split.properties").write_text(text + "metadata.log.dir=/proc/nope\n")
    for _ in range(2):
        assert cli.main([*FORMAT[:-1], "split.properties"]) == 1
        told = capsys.readouterr().err
        assert "directories of log.dirs and metadata.log.dir: create /proc/nope: No such" in told
    assert not (here / "data/meta.properties").exists()


def test_who_must_agree_with_others_is_told_that_its_cluster_id_is_new(here, capsys):
    text = (here / "node.properties").read_text()
    alone, others = "1@localhost:9093", "1@localhost:9093,2@localhost:9193"
    (here / "node.properties").write_text(text.replace(alone, others))
    assert cli.main(FORMAT) == 0
    out = capsys.readouterr().out
    made = re.search(r"cluster\.id (\S+),", out)[1]
    assert f"format the other nodes with --cluster-id {made}" in out
    broker = text.replace("broker,controller", "broker").replace("node.id=1", "node.id=7")
    broker = broker.replace(",CONTROLLER://localhost:9093", "").replace("/data", "/other")
    (here / "broker.properties").write_text(broker)
    assert cli.main(["storage", "format", "--config", "broker.properties"]) == 0
    assert "this node must have that of its controllers" in capsys.readouterr().out
    shutil.rmtree(here / "other")
    known = ["--config", "broker.properties", "--cluster-id", made]
    assert cli.main(["storage", "format", *known]) == 0
    assert "note" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "voters"),
    [
        (["--standalone"], [(1, ("localhost", 9093))]),
        (
            ["--initial-controllers", f"1@a:1:{ID},2@[::1]:2:AAAAAAAAAAAAAAAAAAABAA"],
            [(1, ("a", 1)), (2, ("::1", 2))],
        ),
        (["--no-initial-controllers"], None),
    ],
)
def test_a_quorum_begins_as_it_was_formatted(here, capsys, options, voters):
    assert cli.main([*DYNAMIC, *options]) == 0
    assert ("kraft.version 1" in capsys.readouterr().out) == (voters is not None)
    snapshot = here / "data" / BOOTSTRAP_SNAPSHOT
    assert snapshot.exists() == (voters is not None)
    if voters is None:
        return
    (_, header), (_, footer) = iter_headers(snapshot.read_bytes())
    assert (header.is_control, header.count, footer.count) == (True, 3, 1)
    records = decode_records(snapshot.read_bytes(), 0, header)
    level, made = (decode_control(record.key, record.value).entity for record in records[1:])
    assert level.k_raft_version == 1
    found = voter_set_of(voters_of(made))
    assert [(v.key.node_id, v.endpoints["CONTROLLER"]) for v in found] == voters
    meta = meta_properties.decode((here / "data/meta.properties").read_bytes(), "meta")
    assert found.contains(ReplicaKey(1, meta.directory_id))


def test_a_random_uuid_is_a_directory_id_that_no_command_line_takes_for_an_option(
    here, capsys, monkeypatch
):
    made = [UUID(int=0xFB << 120 | 4 << 76 | 1 << 63), UUID(int=0x01 << 120 | 4 << 76 | 1 << 63)]
    drawn = iter(made)
    with monkeypatch.context() as patched:
        patched.setattr(uuid, "uuid4", lambda: next(drawn))
        assert cli.main(["storage", "random-uuid"]) == 0
    text = capsys.readouterr().out.removesuffix("\n")
    assert (uuids.to_text(made[0])[0], uuids.from_text(text)) == ("-", made[1])
    assert cli.main([*DYNAMIC, "--initial-controllers", f"1@localhost:9093:{text}"]) == 0
    meta = meta_properties.decode((here / "data/meta.properties").read_bytes(), "meta")
    assert meta.directory_id == made[1]


@pytest.mark.parametrize(
    ("config", "controllers", "note"),
    [
        ("dynamic", f"1@h:9093:{ID}", None),
        ("dynamic", f"2@h:9093:{ID}", "note: --initial-controllers names controllers 2, not this "),
        ("dynamic", f"1@h:9094:{ID}", "this node, 1, at h:9094, but its listener CONTROLLER is at"),
        ("broker", f"2@h:9093:{ID}", None),
    ],
)
def test_what_the_initial_controllers_say_of_this_node_may_be_odd(
    here, capsys, config, controllers, note
):
    """Kafka's tool takes it, and it can be meant."""
    arguments = ["--config", f"{config}.properties", "--initial-controllers", controllers]
    assert cli.main(["storage", "format", "--cluster-id", "c", *arguments]) == 0
    told = capsys.readouterr().out
    assert note in told if note else "note" not in told


@pytest.mark.parametrize(
    ("listener", "servers", "others"),
    [
        ("localhost:9093", "localhost:9093", None),
        ("localhost:9093", "localhost:9093,localhost:9193,h:9093", "localhost:9193, h:9093"),
        ("localhost:9093", "h:9093", "h:9093"),
        (":9093", "here.example:9093", None),
        (":9093", "h:9193", "h:9193"),
        (":9093", "localhost:9093,h:9093", "h:9093"),
    ],
)
def test_the_first_of_several_controllers_alone_is_formatted_standalone(
    here, capsys, listener, servers, others
):
    """Each of them would be a quorum of its own, with the id of one cluster."""
    text = (here / "dynamic.properties").read_text()
    text = text.replace("servers=localhost:9093", f"servers={servers}")
    text = text.replace("CONTROLLER://localhost:9093", f"CONTROLLER://{listener}")
    (here / "dynamic.properties").write_text(text)
    assert cli.main([*DYNAMIC, "--standalone", "--cluster-id", "c"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note:")]
    assert len(notes) == (others is not None)
    if others is not None:
        assert "--standalone begins a quorum of this controller alone" in notes[0]
        assert (
            f"bootstrap.servers names {others}, too: format others with --cluster-id c" in notes[0]
        )
        assert "add-voter" in notes[0]


def test_who_is_its_only_voter_is_told_that_it_joins_nobody(here, capsys):
    """With a cluster id of a quorum that there is it would be a second one."""
    assert cli.main([*FORMAT, "--cluster-id", ID]) == 0
    note = capsys.readouterr().out.splitlines()[-1]
    assert f"even where cluster {ID} has one" in note
    assert "controller.quorum.bootstrap.servers" in note


def test_a_cluster_id_of_its_own_is_no_others(here, capsys):
    assert cli.main(FORMAT) == 0
    assert "note" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "metadata.version 25 (4.0-IV3), group.version 1\n"),
        (
            ["--release-version", "4.1"],
            "27 (4.1-IV1), eligible.leader.replicas.version 1, group.version 1\n",
        ),
        (["--feature", "metadata.version=23"], "metadata.version 23 (4.0-IV1), group.version 1\n"),
        (["--release-version", "3.9"], "metadata.version 21 (3.9-IV0)\n"),
        (
            ["--release-version", "4.2", "--feature", "eligible.leader.replicas.version=0"],
            "29 (4.2-IV1), eligible.leader.replicas.version 0, group.version 1\n",
        ),
    ],
)
def test_format_finalises_what_is_asked_for_and_kafkas_defaults(here, capsys, options, said):
    assert cli.main([*FORMAT, *options]) == 0
    assert capsys.readouterr().out.endswith(said)
