"""The checks of form: lint, format, types, import arrows, and the rules of tests/tidy/rules.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import rules

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_lint() -> None:
    run(str(BIN / "ruff"), "check", ".")


def test_format() -> None:
    run(str(BIN / "ruff"), "format", "--check", ".")


@pytest.mark.ci
def test_types() -> None:
    run(str(BIN / "mypy"))


def test_imports_follow_the_arrows() -> None:
    run(str(BIN / "lint-imports"), "--no-cache")


@pytest.mark.parametrize("rule", rules.FILE_RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: rules.FileRule) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in rules.product_files(ROOT)
        for line, what in rule(path.relative_to(ROOT), path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.ci
def test_no_orphan_module() -> None:
    assert rules.orphans(ROOT) == []


def test_top_level_names_are_the_rooms() -> None:
    assert rules.wheel_packages(ROOT) == sorted(rules.ROOMS)


# Each rule must be able to fail.
@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (rules.no_clock_or_chance, "raft/x.py", "import time\nnow = time.time()\n"),
        (rules.no_clock_or_chance, "raft/x.py", "from time import monotonic\n"),
        (rules.no_clock_or_chance, "raft/x.py", "import time as clock\nclock.monotonic()\n"),
        (rules.no_clock_or_chance, "raft/x.py", "import time\nf(time.monotonic)\n"),
        (rules.no_clock_or_chance, "raft/x.py", "from random import choice\n"),
        (rules.no_clock_or_chance, "raft/x.py", "from random import Random\nRandom(1)\n"),
        (rules.no_clock_or_chance, "raft/x.py", "from datetime import date\ndate.today()\n"),
        (rules.no_clock_or_chance, "raft/x.py", "import os\nos.environ['X']\n"),
        (rules.no_clock_or_chance, "raft/x.py", "from concurrent.futures import Executor\n"),
        (rules.no_clock_or_chance, "raft/x.py", "import asyncio\nasyncio.to_thread(f)\n"),
        (
            rules.no_clock_or_chance,
            "raft/x.py",
            "from asyncio import as_completed\nas_completed(t)\n",
        ),
        (rules.no_clock_or_chance, "raft/x.py", "order = sorted(t, key=lambda x: id(x))\n"),
        (rules.no_clock_or_chance, "raft/x.py", "slot = hash(name) % 8\n"),
        (rules.no_clock_or_chance, "pykraft/node.py", "import time\ntime.time()\n"),
        (rules.no_clock_or_chance, "simulation/x.py", "import random\nrandom.Random()\n"),
        (rules.no_clock_or_chance, "simulation/x.py", "import random\nrandom.random()\n"),
        (rules.no_clock_or_chance, "net/x.py", "import uuid\nuuid.uuid4()\n"),
        (rules.no_clock_or_chance, "broker/x.py", "import random\nrandom.Random()\n"),
        (rules.no_clock_or_chance, "broker/x.py", "import datetime\ndatetime.datetime.now()\n"),
        (rules.no_clock_or_chance, "storage/x.py", "open('f')\n"),
        (rules.no_clock_or_chance, "storage/x.py", "import os\nos.rename('a', 'b')\n"),
        (rules.no_set_iteration, "raft/x.py", "for x in {1, 2}: pass\n"),
        (rules.no_set_iteration, "raft/x.py", "s = set(y)\nfor x in s: pass\n"),
        (rules.no_set_iteration, "raft/x.py", "[x for x in set(y)]\n"),
        (rules.no_set_iteration, "raft/x.py", "s: set[int] = f()\nlist(s)\n"),
        (rules.no_set_iteration, "raft/x.py", "def f(s: set[int]):\n    return [*s]\n"),
        (rules.no_set_iteration, "raft/x.py", "s = {1}\n','.join(s)\n"),
        (rules.no_set_iteration, "raft/x.py", "s = {1}\ns.pop()\n"),
        (rules.no_set_iteration, "raft/x.py", "for x in set(a) - b: pass\n"),
        (rules.no_set_iteration, "raft/x.py", "d, _ = await asyncio.wait(t)\nfor x in d: pass\n"),
        (rules.no_set_iteration, "raft/x.py", "for x in (await asyncio.wait(t))[0]: pass\n"),
        (rules.no_module_state, "raft/x.py", "seen = {}\n"),
        (rules.no_module_state, "raft/x.py", "import itertools\nids = itertools.count()\n"),
        (rules.no_module_state, "raft/x.py", "n = 0\ndef f():\n    global n\n    n += 1\n"),
        (rules.short_functions, "wire/x.py", "def f():\n" + "    a = 1\n" * 70),
        (rules.short_files, "wire/x.py", "a = 1\n" * 601),
        (rules.nothing_left_open, "wire/x.py", "# TO" + "DO later\n"),
        (rules.nothing_left_open, "wire/x.py", "raise NotImplemented" + "Error\n"),
    ],
)
def test_rule_can_fail(rule: rules.FileRule, path: str, text: str) -> None:
    assert list(rule(Path(path), text))


@pytest.mark.parametrize(
    "text",
    [
        "def f(rng, names):\n    return [rng.random() for _ in dict.fromkeys(names)]\n",
        "def f(self, random):\n    return self.open(random.random())\n",
        "import random\ndef f(chance: random.Random): ...\n",
        "s = {1, 2}\nif 1 in s:\n    x = sorted(s), len(s), max(s)\n",
        "from asyncio import wait\nawait wait(tasks)\n",
        "NAMES = {'a': 1}\nORDER = ['a']\n",
    ],
)
def test_rules_let_good_code_pass(text: str) -> None:
    for rule in rules.FILE_RULES:
        assert not list(rule(Path("raft/x.py"), text))
