"""Exit codes: 0 done, 1 refused with one line, 2 not a command; never a traceback."""

import argparse
import re

import pytest
from command_lines import DEAD, DYNAMIC, FORMAT, ID

from pykraft import cli
from pykraft.cli import listeners, values

NOBODY = ("--bootstrap", "127.0.0.1:1")
ALTER = ("configs", "alter", "--topic", "t", *DEAD)
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
