"""Scripted scenarios of the quorum core, with transcripts that a person can read.

A file in `scenarios/` is made of blocks, separated by empty lines. A block is comment lines (`#`)
and commands; one that ends in `----` is shown, and below that line stands what happened. One
without it only sets the scene. Rewrite what is expected, and look at the difference, with

    .venv/bin/python tests/simulation/raft_scenarios.py --rewrite [FILE …]

Commands (nodes by number):

    cluster VOTERS [OBSERVERS]    the first command
    pass MS                       time passes
    first N | together A B        N is the most impatient from now on; A and B are equally so
    until N leads                 time passes until N leads, whatever it has committed
    until N holds VALUE           time passes until N's log has it
    elect N                       time passes until N leads and has committed in its epoch
    append N VALUE …              N, the leader, appends these as one batch
    read N NAME                   N is asked for a linearizable read
    resign N | leave N            N gives its leadership up; or means to stop, too
    cut A B | oneway A B          messages between them (from A to B) are lost
    isolate N | mend [A [B]]      N is cut off; cuts (of A, between A and B) end
    drop A B                      the connection from A to B drops
    start [N]                     N, or every node, is started
    crash N | power N             a killed process; a power cut (what isn't synced is gone)
    disk N stops | disk N works   its fsyncs don't finish; they do
    damage N OFFSET               of N, which is down, synced records from OFFSET are unreadable
    snapshot N [trim]             N writes a snapshot of what is committed; and trims its log
    batch COUNT                   an answer to a fetch holds at most so many records
    fetches N | fetches off       shows fetches of N and their answers
    show                          a line a node: role, epoch, log as epoch:value, `-` for the record
                                  that opens an epoch, `|` behind what the node knows committed
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCENARIOS = HERE / "scenarios"
RULER = "----"

if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "support")]

from raft_stage import Stage  # noqa: E402 found by the lines above in a script


class Script:
    """Runs commands on a stage."""

    def __init__(self) -> None:
        self.stage: Stage = Stage()

    def run(self, line: str) -> list[str]:
        """The lines that a command prints itself; what happens is said by the stage."""
        name, *words = line.split()
        command = getattr(self, f"do_{name}", None)
        if command is None:
            raise ValueError(f"there is no command {name!r}: {line}")
        return command(*words) or []

    def do_cluster(self, voters: str, observers: str = "0") -> None:
        loud = self.stage.loud
        self.stage = Stage(int(voters), int(observers))
        self.stage.loud = loud

    def do_pass(self, ms: str) -> None:
        self.stage.pass_ms(int(ms))

    def do_first(self, node: str) -> None:
        self.stage.be_first(int(node))

    def do_together(self, a: str, b: str) -> None:
        self.stage.patience[int(a)].share = self.stage.patience[int(b)].share = 0.0

    def do_until(self, node: str, verb: str, *values: str) -> None:
        member = self.stage.members[int(node)]
        if verb == "leads":
            self.stage.wait(lambda: member.is_leader)
        else:
            self.stage.wait(lambda: values[0] in self.stage.values(int(node)))

    def do_batch(self, count: str) -> None:
        self.stage.batch = int(count)

    def do_elect(self, node: str) -> None:
        self.stage.elect(int(node))

    def do_append(self, node: str, *values: str) -> None:
        self.stage.append(int(node), list(values))

    def do_read(self, node: str, name: str) -> None:
        self.stage.read(int(node), name)

    def do_resign(self, node: str) -> None:
        self.stage.resign(int(node))

    def do_leave(self, node: str) -> None:
        self.stage.resign(int(node), leaving=True)

    def do_cut(self, a: str, b: str) -> None:
        self.stage.cut(int(a), int(b))

    def do_oneway(self, a: str, b: str) -> None:
        self.stage.cut(int(a), int(b), both=False)

    def do_isolate(self, node: str) -> None:
        self.stage.isolate(int(node))

    def do_mend(self, *nodes: str) -> None:
        self.stage.mend(*map(int, nodes))

    def do_drop(self, a: str, b: str) -> None:
        self.stage.drop_link(self.stage.members[int(a)], int(b))

    def do_crash(self, node: str) -> None:
        self.stage.crash(int(node), unsynced_lost=False)

    def do_power(self, node: str) -> None:
        self.stage.crash(int(node), noticed=False)

    def do_start(self, *nodes: str) -> None:
        for node in map(int, nodes) if nodes else self.stage.members:
            self.stage.boot_node(node)

    def do_disk(self, node: str, state: str) -> None:
        self.stage.set_disk(int(node), works=state == "works")

    def do_damage(self, node: str, offset: str) -> None:
        self.stage.damage(int(node), int(offset))

    def do_snapshot(self, node: str, trim: str = "") -> None:
        self.stage.members[int(node)].take_snapshot(trim=trim == "trim")

    def do_fetches(self, node: str) -> None:
        self.stage.fetches_of = None if node == "off" else int(node)

    def do_show(self) -> list[str]:
        return self.stage.show()


def play(text: str) -> str:
    """The scenario's text with what happens now below each ruler."""
    script = Script()
    return "\n\n".join(_play_block(script, block) for block in text.strip().split("\n\n")) + "\n"


def _play_block(script: Script, block: str) -> str:
    head, ruler, _ = block.partition(f"\n{RULER}")
    shown: list[str] = []
    for line in head.splitlines():
        if not line or line.startswith("#"):
            continue
        script.stage.loud = bool(ruler)
        printed = script.run(line)
        shown += script.stage.lines
        script.stage.lines = []
        shown += printed
    if not ruler:
        return head
    return "\n".join([head, RULER, *shown])


def main() -> None:
    parser = argparse.ArgumentParser(description="Play the scenarios of the quorum core.")
    parser.add_argument("files", nargs="*", type=Path, help="default: all")
    parser.add_argument("--rewrite", action="store_true", help="write down what happens")
    options = parser.parse_args()
    for path in options.files or sorted(SCENARIOS.glob("*.txt")):
        played = play(path.read_text())
        if options.rewrite:
            path.write_text(played)
        else:
            print(f"{path.name}\n\n{played}")


if __name__ == "__main__":
    main()
