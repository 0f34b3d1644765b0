"""The command line: 0 done, 1 refused with one line, 2 not a command; never a traceback."""

import argparse
import json
import os
import re
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from waiting import wait_until

from pykraft import cli
from pykraft.cli import door, listeners, quorum, values
from pykraft.local_cluster import LocalCluster, plan
from pykraft.ports import free_ports
from pykraft.storage_format import BOOTSTRAP_SNAPSHOT
from raft.quorum import MAX_EPOCH
from raft.voters import ReplicaKey, nothing_committed, voter_set_of
from wire import meta_properties, quorum_state, uuids
from wire.batch import decode_records, iter_headers
from wire.control import decode_control, voters_of
from wire.errors import ErrorCode, KafkaError
from wire.exits import EXIT_BAD_DIRECTORY, EXIT_CANNOT_LISTEN, EXIT_NO_EPOCH_LEFT
from wire.quorum_state import QuorumState

ROOT = Path(__file__).resolve().parents[3]
NODE = """\
node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@localhost:9093
log.dirs={data}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder without a cluster, with a node's configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYKRAFT_ADMIN", raising=False)
    monkeypatch.delenv("PYKRAFT_BOOTSTRAP", raising=False)
    monkeypatch.setenv("PYKRAFT_HOME", str(tmp_path / "home"))
    (tmp_path / "node.properties").write_text(NODE.format(data=tmp_path / "data"))
    dynamic = NODE.replace("quorum.voters=1@", "quorum.bootstrap.servers=")
    (tmp_path / "dynamic.properties").write_text(dynamic.format(data=tmp_path / "data"))
    broker = dynamic.replace("broker,controller", "broker")
    broker = broker.replace(",CONTROLLER://localhost:9093", "")
    (tmp_path / "broker.properties").write_text(broker.format(data=tmp_path / "data"))
    (tmp_path / "nodisk.properties").write_text(NODE.format(data="/proc/nope"))
    typo = NODE.format(data="d").replace("process.roles", "process.role")
    (tmp_path / "nul.properties").write_text(NODE.format(data="d\\u0000"))
    (tmp_path / "typo.properties").write_text(typo)
    (tmp_path / "bad.properties").write_text(NODE.format(data="d").replace("id=1", "id=one"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "file").write_text("")
    return tmp_path


DEAD = ("--admin", "127.0.0.1:1", "--timeout", "0.5")
NOBODY = ("--bootstrap", "127.0.0.1:1")
FORMAT = ("storage", "format", "--config", "node.properties")
DYNAMIC = ("storage", "format", "--config", "dynamic.properties")
ALTER = ("configs", "alter", "--topic", "t", *DEAD)
ID = "MkU3OEVBNTcwNTJENDM2Qg"
ID2 = "NkU3OEVBNTcwNTJENDM2Qw"
TWICE = ("--feature", "metadata.version=25")
REFUSED = [
    (["topics", "list"], "no controllers given: no --admin, no PYKRAFT_ADMIN, no cluster"),
    (["topics", "list", *DEAD], "NETWORK_EXCEPTION"),
    (["topics", "list", "--admin", "a..b:1", "--timeout", "0.5"], "NETWORK_EXCEPTION"),
    (["topics", "list", "--admin", "h"], "address 'h' of --admin: must be HOST:PORT"),
    (["topics", "list", "--admin", "h:99999"], "'h:99999' of --admin: must be HOST:PORT, the port"),
    (["topics", "list", "--admin", "h:0"], "must be HOST:PORT, the port from 1 to 65535"),
    (["topics", "list", "--admin", "::", "--timeout", "1"], "address '::' of --admin: must be"),
    (["topics", "list", "--admin", ","], "no address was given by --admin: must be HOST:PORT"),
    (["topics", "create", "x", "--partitions", "1", "--config", "a", *DEAD], "NAME=VALUE"),
    (["configs", "alter", "--topic", "t", *DEAD], "nothing to alter"),
    ([*ALTER, "--set", "retention.ms=1", "--set", "retention.ms=5"], "retention.ms is given twice"),
    (
        [*ALTER, "--set", "retention.ms=1", "--delete", "retention.ms"],
        "retention.ms is given twice",
    ),
    (
        ["topics", "create", "t", "--assignment", "1:٣", *DEAD],
        "--assignment 1:٣: must be broker ids",
    ),
    (
        ["topics", "create", "t", "--assignment", "1_1", *DEAD],
        "--assignment 1_1: must be broker ids",
    ),
    (["elect", "preferred", "orders", *DEAD], "orders: must be TOPIC:PARTITION"),
    (["watch", "--dir", "elsewhere"], "no controllers given: no --admin, no PYKRAFT_ADMIN, no"),
    (["groups", "list"], "no brokers given: no --bootstrap, no PYKRAFT_BOOTSTRAP, no cluster"),
    (["groups", "list", *NOBODY], "no Kafka broker answers at 127.0.0.1:1: "),
    (["groups", "list", "--bootstrap", "localhost"], "'localhost': must be HOST:PORT"),
    (["groups", "list", "--bootstrap", "h:1,h:0"], "'h:0': must be HOST:PORT, the port from 1"),
    (["groups", "reset", "g", "--to", "noon", *NOBODY], "--to 'noon': must be earliest, latest,"),
    (["groups", "reset", "g", "--to", "1960-01-01", *NOBODY], "--to '1960-01-01': must be a time"),
    (["groups", "reset", "g", "--to", "", *NOBODY], "--to '': must be earliest, latest,"),
    (
        ["groups", "reset", "g", "--to", "1", "--topic", ":0", *NOBODY],
        "--topic ':0': must be TOPIC",
    ),
    (
        ["groups", "reset", "g", "--to", "1", "--topic", "t:", *NOBODY],
        "--topic 't:': must be TOPIC",
    ),
    (["groups", "reset", "g", "--to", "1", "--topic", "", *NOBODY], "--topic '': must be TOPIC"),
    (["groups", "list", "--bootstrap", ""], "--bootstrap '': must be HOST:PORT"),
    (["topics", "list", "--admin", " "], "--admin ' ': must be HOST:PORT"),
    (["groups", "reset", "g", "--to", "1", "--topic", "t:a", *NOBODY], "TOPIC:P,P,… with"),
    (["cluster", "status"], "no cluster in"),
    (["cluster", "kill", "1"], "no cluster in"),
    (["cluster", "up", "--brokers", "0"], "--brokers 0: at least 1"),
    (["cluster", "up", "--controllers", "99"], "--controllers 99: 0 to 50"),
    (["cluster", "up", "--base-port", "65530"], "--base-port 65530: 1024 to"),
    (["cluster", "up", "--dir", "file"], "can't use"),
    (["quorum", "add-voter", "4", *DEAD], "NETWORK_EXCEPTION"),
    (["quorum", "remove-voter", "4", "--directory", "x", *DEAD], "NETWORK_EXCEPTION"),
    (["quorum", "add-voter", "4", "--directory", "x", "--endpoint", "h:1", *DEAD], "LISTENER=HOST"),
    (
        ["quorum", "add-voter", "4", "--directory", "x", "--endpoint", "C=h:99999", *DEAD],
        "--endpoint C=h:99999: must be LISTENER=HOST:PORT, the port from 1 to 65535",
    ),
    ([*FORMAT, "--standalone"], "set controller.quorum.bootstrap.servers in its place"),
    ([*FORMAT, "--no-initial-controllers"], "controller.quorum.voters would be in force"),
    (DYNAMIC, "--standalone, --initial-controllers or --no-initial-controllers"),
    ([*DYNAMIC, "--initial-controllers", "1@h:1"], "ID@HOST:PORT:DIRECTORY"),
    ([*DYNAMIC, "--initial-controllers", "1@h:1:x"], "(`pykraft storage random-uuid` makes one)"),
    ([*DYNAMIC, "--initial-controllers", f"1@h:1:{ID},1@h:2:{ID}"], "1 is there twice"),
    (
        [*DYNAMIC, "--initial-controllers", f"1@h:1:{'A' * 22}"],
        "must be a random one (`pykraft storage random-uuid`",
    ),
    ([*DYNAMIC, "--initial-controllers", f"1@h:0x1:{ID}"], "must be host:port"),
    ([*DYNAMIC, "--initial-controllers", f"1@h:0:{ID}"], "h:0 for --initial-controllers: must be"),
    ([*DYNAMIC, "--initial-controllers", f"1@:1:{ID}"], "a port of 1 to 65535"),
    ([*DYNAMIC, "--initial-controllers", f"1@2@h:1:{ID}"], "'2@h' is neither an address nor a"),
    ([*DYNAMIC, "--initial-controllers", f"1@h:1:{ID},2@h:1:{ID2}"], "1 has the same address"),
    ([*DYNAMIC, "--initial-controllers", f"1@h:1:{ID},2@h:2:{ID}"], "1 has the same directory id"),
    (
        [*FORMAT[:-1], "broker.properties", "--initial-controllers", f"1@h:1:{ID}"],
        "it names node 1, this one, which must have the controller role to vote",
    ),
    ([*DYNAMIC, "--standalone", "--feature", "kraft.version=0"], "1 with --standalone"),
    ([*DYNAMIC, "--no-initial-controllers", "--feature", "kraft.version=1"], "else 0"),
    (
        ["server", "nowhere.properties"],
        "can't read nowhere.properties: No such file or directory\n",
    ),
    (
        ["server", "typo.properties"],
        "broker, controller, or both; unknown names: process.role (is process.roles meant?)\n",
    ),
    (["server", "binary"], "can't read binary"),
    (["server", "typo.properties"], "typo.properties: Missing process.roles: "),
    (
        ["server", "bad.properties"],
        "bad.properties: Invalid value 'one' for node.id: must be a whole number",
    ),
    (["storage", "format", "--config", "nowhere"], "can't read nowhere"),
    (["storage", "format", "--config", "node.properties", "--release-version", "9.9"], "9.9"),
    (["storage", "format", "--config", "node.properties", "--release-version", "3.0"], "3.3-IV3"),
    (
        ["storage", "format", "--config", "node.properties", "--cluster-id", " "],
        "only letters, digits",
    ),
    (
        ["storage", "format", "--config", "nodisk.properties"],
        "can't format the directories of log.dirs: create /proc/nope: No such file",
    ),
    (
        ["storage", "format", "--config", "nul.properties"],
        r"nul.properties: Invalid value 'd\x00' for log.dirs: must be a path",
    ),
    (["server", "nul.properties"], r"Invalid value 'd\x00' for log.dirs: must be a path"),
    ([*FORMAT, "--feature", "x=1"], "0 to 0"),
    ([*FORMAT, "--feature", "x"], "NAME=LEVEL"),
    (
        [*FORMAT, "--release-version", "4.0", *TWICE],
        "--release-version and --feature metadata.version: give one",
    ),
    (["features", "upgrade", *DEAD], "nothing to upgrade: give --feature or --metadata"),
    (["features", "disable", *DEAD], "nothing to disable: give --feature\n"),
    (["features", "upgrade", "--metadata", "4.x", *DEAD], "--metadata 4.x: must be a release"),
    (["features", "upgrade", "--metadata", "²", *DEAD], "--metadata ²: must be a release"),
    (["elect", "preferred", "t:²", *DEAD], "t:²: must be TOPIC:PARTITION"),
    (["features", "upgrade", "--metadata", "4.9", *DEAD], "; 7 (3.3-IV3) to 29 (4.2-IV1) are"),
    (["features", "upgrade", "--feature", "x=-1", *DEAD], "x=-1: must be NAME=LEVEL, the level a "),
    (["features", "upgrade", "--feature", "x=-1", *DEAD], "a number from 0"),
    (
        ["features", "upgrade", "--metadata", "4.1", "--metadata", "4.2", *DEAD],
        "--metadata 4.2: metadata.version is named twice",
    ),
    (["features", "downgrade", *TWICE, *TWICE, *DEAD], "named twice"),
    (
        ["features", "downgrade", *TWICE, "--metadata", "4.0", *DEAD],
        "--metadata and --feature metadata.version: give one",
    ),
    (["features", "describe", *DEAD], "NETWORK_EXCEPTION"),
    (["log", "dump", "nowhere"], "nowhere: no such file"),
    (["audit", "verify", "nowhere"], "nowhere"),
]


@pytest.mark.parametrize(("arguments", "told"), REFUSED, ids=lambda one: " ".join(one)[:40])
def test_a_refusal_is_one_line_and_exit_code_1(here, capsys, arguments, told):
    assert cli.main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


UNPARSABLE = [
    ["storage", "format", "--config", "c", "--standalone", "--no-initial-controllers"],
    ["groups", "describe"],
    ["groups", "reset", "g"],
    ["quorum", "add-voter"],
    ["quorum", "remove-voter", "one"],
    [],
    ["nonsense"],
    ["topics"],
    ["topics", "paint"],
    ["topics", "create"],
    ["cluster", "up", "--brokers", "many"],
    ["cluster", "kill"],
    ["brokers", "unregister", "one"],
    ["storage", "format"],
    ["configs", "describe"],
    ["features", "upgrade", "--unsafe"],
    ["audit", "state", "x", "--at-time", "teatime"],
    ["topics", "list", "--no-such-option"],
    [*FORMAT, "--release-version", "4.0", "--release-version", "4.1"],
    ["topics", "create", "t", "--partitions", "1", "--partitions", "2"],
]


@pytest.mark.parametrize("arguments", UNPARSABLE, ids=" ".join)
def test_what_is_no_command_is_exit_code_2(here, capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: pykraft" in capsys.readouterr().err


INT32 = "must be a whole number from 0 to 2147483647"
SECONDS = "must be seconds, more than 0 and at most 86400"
BAD_VALUES = [
    (["quorum", "remove-voter", "٣"], f"argument ID: '٣': {INT32}"),
    (["quorum", "add-voter", "1_1"], f"argument ID: '1_1': {INT32}"),
    (["quorum", "add-voter", "-1"], f"argument ID: '-1': {INT32}"),
    (["quorum", "add-voter", "2147483648"], f"'2147483648': {INT32}"),
    (["quorum", "add-voter", "9" * 5000], f"…': {INT32}"),
    (["brokers", "unregister", "+1"], f"argument ID: '+1': {INT32}"),
    (["configs", "describe", "--broker", "1_1"], f"argument --broker: '1_1': {INT32}"),
    (["cluster", "up", "--base-port", "٢٢٠٠٠"], "'٢٢٠٠٠': must be a whole number from 1 to 65535"),
    (["cluster", "up", "--base-port", "99999"], "'99999': must be a whole number from 1 to 65535"),
    (["cluster", "up", "--brokers", "-1"], f"argument --brokers: '-1': {INT32}"),
    (["cluster", "kill", "1", " 2"], f"argument ID: ' 2': {INT32}"),
    (["topics", "create", "t", "--partitions", "٣"], "'٣': must be a whole number from 1 to"),
    (["topics", "create", "t", "--partitions", "0"], "'0': must be a whole number from 1 to"),
    (["topics", "create", "t", "--replication-factor", "0"], "'0': must be a whole number from 1"),
    (["watch", "--from", "-3"], "'-3': must be a whole number from 0 to 9223372036854775807"),
    (["audit", "state", "d", "--at-offset", "²"], "'²': must be a whole number from 0 to 92"),
    *(
        (["topics", "list", "--timeout", text], f"argument --timeout: {text!r}: {SECONDS}")
        for text in ("0", "-1", "inf", "nan", "1e400", "1e15", "86400.1", "٣", "1_0", "1s", "")
    ),
    (["watch", "--timeout", "inf"], SECONDS),
    (["groups", "list", "--timeout", "inf"], SECONDS),
    *(
        (arguments, f"argument {arguments[-2]}: it is empty")
        for arguments in (
            [*FORMAT, "--cluster-id", ""],
            ["storage", "format", "--config", ""],
            ["storage", "info", "--config", ""],
            ["topics", "list", "--dir", ""],
            ["cluster", "up", "--dir", ""],
            ["quorum", "add-voter", "4", "--directory", ""],
            ["audit", "timeline", "d", "--out", ""],
            ["audit", "verify", "d", "--master", ""],
        )
    ),
    (["log", "dump", ""], "argument PATH: it is empty"),
    (["audit", "verify", ""], "argument DIR: it is empty"),
    (["audit", "state", ""], "argument DIR: it is empty"),
    (["server", ""], "argument CONFIG: it is empty"),
]


@pytest.mark.parametrize(("arguments", "told"), BAD_VALUES, ids=lambda one: " ".join(one)[:40])
def test_a_value_that_an_argument_cannot_have_is_told_with_what_it_may_be(
    here, capsys, arguments, told
):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert not (here / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([*FORMAT, "--cluster-id", "-abc"], "--cluster-id=-abc"),
        ([*FORMAT, "--cluster-id", "-hello"], "--cluster-id=-hello"),
        ([*FORMAT, "--cluster", "--x", "--standalone"], "--cluster-id=--x"),
        (["topics", "create", "t", "--config", "-a=1"], "--config=-a=1"),
        (["quorum", "add-voter", "4", "--directory", "-_x"], "--directory=-_x"),
        ([*FORMAT, "--cluster-id"], None),
        ([*FORMAT, "--cluster-id", "--standalone"], None),
        ([*FORMAT, "--cluster-id", "--feature=x=1"], None),
        ([*FORMAT, "--cluster-id", "--stand"], None),
    ],
)
def test_a_value_that_looks_like_an_option_is_told_how_to_write_it(here, capsys, arguments, hint):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    wanted = f"; a value that begins with '-' is written {hint}" if hint else ""
    assert capsys.readouterr().err.endswith(f": expected one argument{wanted}\n")


def test_a_cluster_id_may_begin_with_a_dash(here, capsys):
    assert cli.main([*FORMAT, "--cluster-id=-abc"]) == 0
    meta = meta_properties.decode((here / "data/meta.properties").read_bytes(), "meta")
    assert meta.cluster_id == "-abc"


def test_any_time_limit_of_a_command_is_milliseconds():
    """One of 0 would be over before anything is asked."""
    for text, ms in (("1e-9", 1), (".25", 250), ("1.", 1000), ("86400", 86_400_000)):
        limit = values.seconds(text)
        assert listeners.timeout_ms(argparse.Namespace(timeout=limit)) == ms


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["topics", "list", "--no-such-option"], "usage: pykraft topics list "),
        (["cluster", "up", "3"], "usage: pykraft cluster up "),
        (["audit", "verify", "d", "--no-such-option"], "usage: pykraft audit verify "),
        (["server", "c", "--no-such-option"], "usage: pykraft server "),
    ],
)
def test_what_a_verb_does_not_know_is_told_with_its_own_usage(here, capsys, arguments, usage):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(usage)


@pytest.mark.parametrize("noun", sorted(cli.NOUNS))
def test_every_noun_has_help(capsys, noun):
    with pytest.raises(SystemExit) as ended:
        cli.main([noun, "--help"])
    assert ended.value.code == 0
    assert f"pykraft {noun}" in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"pykraft \d+\.\d+\S*\n", capsys.readouterr().out)


def test_a_person_is_told_why_a_command_waits_and_a_script_is_not(here, capsys, monkeypatch):
    assert cli.main(["topics", "list", *DEAD]) == 1
    assert "waiting" not in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert cli.main(["topics", "list", *DEAD]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("pykraft: waiting: ")
    assert len(set(told)) == len(told), "each reason once"


def test_what_speaks_no_grpc_is_told_at_once(here, capsys, monkeypatch):
    """Both kinds of other listeners: one that closes, and one that answers in its own way."""
    for answer in (b"", b"HTTP/1.1 405 Method Not Allowed\r\n\r\n"):
        with answering(answer) as address:
            began = time.monotonic()
            assert cli.main(["topics", "list", "--admin", address]) == 1
            told = capsys.readouterr().err
            assert f"{address} (--admin) answers, but not in gRPC" in told
            assert "pykraft.admin.listener" in told
            assert time.monotonic() - began < 15, "not for all of the 30 s that a command has"
            monkeypatch.setenv("PYKRAFT_ADMIN", address)
            assert cli.main(["topics", "list"]) == 1
            assert f"{address} (PYKRAFT_ADMIN) answers" in capsys.readouterr().err
            # Another address may come up yet.
            others = f"{address},127.0.0.1:1"
            assert cli.main(["topics", "list", "--admin", others, "--timeout", "0.5"]) == 1
            assert f"no answer within 500 ms from {address}, 127.0.0.1:1 (--admin)" in (
                capsys.readouterr().err
            )


@contextmanager
def answering(data):
    """The address of something that answers whatever it is sent with `data`, and closes."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(1000)
            self.request.sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_local_cluster_that_does_not_run_is_told_at_once(here, capsys):
    LocalCluster(here / "home").create(plan(1, 1, None))
    assert cli.main(["topics", "list"]) == 1
    assert f"no node of {here}/home runs: `pykraft cluster up`" in capsys.readouterr().err
    assert cli.main(["groups", "list"]) == 1
    assert f"no broker of {here}/home runs: `pykraft cluster up`" in capsys.readouterr().err
    # Its broker alone runs: this very process stands for it.
    created = psutil.Process().create_time()
    record = {"pid": os.getpid(), "created": created, "stopped": False}
    (here / "home" / "nodes" / "1" / "process.json").write_text(json.dumps(record))
    assert cli.main(["topics", "list"]) == 1
    told = capsys.readouterr().err
    assert f"no controller of {here}/home runs: `pykraft cluster start 101`" in told


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


def ended_server(folder):
    """A node of this folder's configuration, which ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "pykraft", "server", "node.properties"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_node_on_an_unformatted_directory_says_so_and_ends_with_its_code(here):
    done = ended_server(here)
    assert done.returncode == EXIT_BAD_DIRECTORY
    assert f"{here}/data does not exist" in done.stderr
    assert "`pykraft storage format`" in done.stderr
    assert '"event": "stopped"' in done.stderr
    assert "Traceback" not in done.stderr


def ended_server_at(place, directory, broker="127.0.0.1:0"):
    """What a node says that can't listen at `place` as a controller."""
    (directory / "node.properties").write_text(
        "node.id=1\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://{broker},CONTROLLER://{place}\n"
        f"controller.quorum.voters=1@{place}\nlog.dirs={directory}/data\n"
    )
    done = ended_server(directory)
    assert done.returncode == EXIT_CANNOT_LISTEN
    assert not (directory / "data").exists()
    return done.stderr


def test_a_node_whose_port_is_taken_touches_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        told = ended_server_at(place, tmp_path)
    assert f"pykraft: not started: {place} can't be listened on: Address already in use" in told


def test_two_listeners_of_a_node_cannot_have_one_port_by_two_names(tmp_path):
    [port] = free_ports(1)
    told = ended_server_at(f"127.0.0.1:{port}", tmp_path, broker=f"localhost:{port}")
    assert f"127.0.0.1:{port} can't be listened on: Address already in use" in told
    assert "(set by listeners)" in told


def test_a_node_whose_host_has_no_address_says_so(tmp_path):
    told = ended_server_at("no-such-host.invalid:9093", tmp_path)
    assert "no-such-host.invalid:9093 can't be listened on" in told
    assert "(set by listeners)" in told
    assert "Unknown error" not in told


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


def test_a_node_that_led_the_last_epoch_ends_with_its_code(here):
    broker, controller = free_ports(2)
    text = NODE.format(data=here / "data").replace("9092", str(broker))
    (here / "node.properties").write_text(text.replace("9093", str(controller)))
    assert cli.main(FORMAT) == 0
    metadata = here / "data" / "__cluster_metadata-0"
    metadata.mkdir(exist_ok=True)
    (metadata / "quorum-state").write_bytes(quorum_state.encode(QuorumState(MAX_EPOCH, 1, 1)))
    done = ended_server(here)
    assert done.returncode == EXIT_NO_EPOCH_LEFT
    assert f"epoch {MAX_EPOCH} is the last that there is" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_serves_when_nobody_reads_its_log_any_more(here):
    """As after `pykraft server … 2>&1 | head`."""
    broker, controller, metrics = free_ports(3)
    text = NODE.format(data=here / "data").replace("9092", str(broker))
    text = text.replace("9093", str(controller))
    (here / "node.properties").write_text(f"{text}pykraft.metrics.listener=127.0.0.1:{metrics}\n")
    assert cli.main(FORMAT) == 0
    with subprocess.Popen(
        [sys.executable, "-m", "pykraft", "server", "node.properties"],
        cwd=here,
        env={"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        try:
            process.stderr.readline()
            process.stderr.close()

            def ready():
                assert process.poll() is None
                try:
                    url = f"http://127.0.0.1:{metrics}/readyz"
                    return urllib.request.urlopen(url, timeout=5).status == 200
                except OSError:
                    return False

            wait_until(ready, "the node is ready", 30)
            process.terminate()
            assert process.wait(120) == 0
        finally:
            process.kill()
