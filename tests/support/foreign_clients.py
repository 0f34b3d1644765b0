"""Client programs (tests/clients/go, …/node, …/python): built where that is needed, and run.

Each is called as `PROGRAM COMMAND BOOTSTRAP …`:

    write TOPIC PARTITIONS COUNT CODEC    numbered records (traffic.value), all acknowledged
    read TOPIC PARTITIONS COUNT           prints `PARTITION OFFSET VALUE` lines
    admin TOPIC                           prints one JSON object, what its calls were answered
    member GROUP TOPIC PROTOCOL INSTANCE  consumes in a group until SIGTERM, telling in JSON lines
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kafka_jvm import cache_dir, skip_or_fail

CLIENTS = Path(__file__).resolve().parent.parent / "clients"
BUILD_S = 1200
RUN_S = 600


def _newest(folder):
    return max(path.stat().st_mtime for path in folder.rglob("*") if path.is_file())


def _run(command, cwd, what):
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode != 0:
        skip_or_fail(f"{what}: {(done.stdout + done.stderr)[-1500:]}")


def go_program(name):
    """The command of tests/clients/go/NAME; skips or fails where it can't be built."""
    go = shutil.which("go")
    if go is None:
        skip_or_fail("no Go on this machine")
    source, program = CLIENTS / "go", cache_dir() / "go" / name
    if not program.exists() or program.stat().st_mtime < _newest(source):
        program.parent.mkdir(exist_ok=True)
        command = [go, "build", "-mod=readonly", "-o", str(program), f"./{name}"]
        _run(command, source, f"Go can't build {name}")
        os.utime(program)
    return [str(program)]


def node_program(name):
    """The command of tests/clients/node/NAME.js; skips or fails without Node or its packages."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        skip_or_fail("no Node.js with npm on this machine")
    source, place = CLIENTS / "node", cache_dir() / "node"
    place.mkdir(exist_ok=True)
    lock, installed = source / "package-lock.json", place / "installed.json"
    if not installed.exists() or installed.read_text() != lock.read_text():
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, place)
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        _run(command, place, "npm can't install the clients")
        shutil.copy(lock, installed)
    for file in source.glob("*.js"):
        shutil.copy(file, place)
    return [node, str(place / f"{name}.js")]


def python_program(name):
    """The command of tests/clients/python/NAME.py."""
    return [sys.executable, str(CLIENTS / "python" / f"{name}.py")]


LANGUAGES = {
    "franz-go": lambda: go_program("franz"),
    "sarama": lambda: go_program("sarama"),
    "kafkajs": lambda: node_program("kafkajs"),
}
# Python's clients write and read in the tests' own process; members are processes everywhere.
LIBRARIES = LANGUAGES | {"aiokafka": lambda: python_program("aiokafka_member")}


class ForeignClient:
    """One library's program."""

    def __init__(self, name):
        self.name = name
        self._command = LIBRARIES[name]()

    def run(self, *arguments):
        """Runs one command; returns what it printed, fails with what it complained of."""
        done = subprocess.run(
            [*self._command, *map(str, arguments)],
            capture_output=True,
            timeout=RUN_S,
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(f"{self.name} {arguments}: {done.stderr.decode(errors='replace')[-3000:]}")
        return done.stdout

    def write(self, bootstrap, topic, count, codec="none", partitions=3):
        self.run("write", bootstrap, topic, partitions, count, codec)

    def read(self, bootstrap, topic, seen):
        """Reads all from the start and gives it to `seen` (traffic.Seen)."""
        told = self.run("read", bootstrap, topic, seen.partitions, seen.count)
        for line in told.splitlines():
            partition, offset, value = line.split(b" ", 2)
            seen.add(int(partition), int(offset), value)
        assert seen.left == 0

    def admin(self, bootstrap, topic):
        """What the program's admin calls were answered."""
        return json.loads(self.run("admin", bootstrap, topic))

    def member(self, bootstrap, group, topic, protocol="range", instance="-"):
        """A member of a group, in a process of its own."""
        arguments = ("member", bootstrap, group, topic, protocol, instance)
        return ForeignMember([*self._command, *arguments])


class ForeignMember:
    """The process of a member: `owns` are its partitions, `got` what it has consumed, `errors`
    what it complained of."""

    def __init__(self, command):
        self.owns = []
        self.got = []
        self.errors = []
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._readers = [
            threading.Thread(target=self._read),
            threading.Thread(target=self._read_complaints),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            self.owns = said.get("owns", self.owns)
            self.got += map(tuple, said.get("got", ()))
            self.errors += [said[what] for what in ("error", "not_committed") if what in said]

    def _read_complaints(self):
        self.errors += self.process.stderr

    def kill(self):
        """SIGKILL: it leaves no group and commits nothing."""
        self.process.kill()
        self._ended()

    def leave(self):
        """It is asked to end, and ends well."""
        self.process.terminate()
        assert self._ended() == 0, self.errors

    def _ended(self):
        code = self.process.wait(120)
        for reader in self._readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        self.owns = []
        return code
