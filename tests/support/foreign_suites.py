"""Other projects' own test suites as judges: where their sources are, and their lists.

A suite is taken from a package registry when its tests run and kept in the tests' cache; no line of
it is in this repository. Two lists say what becomes of its tests:

    tests/foreign/SUITE.txt            a test a line, all of which must pass
    tests/foreign/SUITE_left_out.txt   a test a line, with ": " and why it can't be asked

A test of the suite that is on neither list fails ours, so that somebody looks at a new version.
"""

import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from kafka_jvm import cache_dir, skip_or_fail

FOREIGN = Path(__file__).resolve().parent.parent / "foreign"
FETCH_S = 600


@dataclass(frozen=True)
class Verdict:
    """What a suite said of one of its tests: `passed`, `failed` or `skipped`, and why."""

    outcome: str
    reason: str = ""


def allowed(suite):
    """The tests that must pass, in the list's order."""
    return _lines(FOREIGN / f"{suite}.txt")


def left_out(suite):
    """Test -> why it is left out."""
    lines = _lines(FOREIGN / f"{suite}_left_out.txt")
    return {test: why for test, _, why in (line.partition(": ") for line in lines)}


def _lines(path):
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def complaints(suite, tests):
    """What is wrong with the lists of a suite that has these tests."""
    runs, out = allowed(suite), left_out(suite)
    listed = [*runs, *_tests(FOREIGN / f"{suite}_left_out.txt")]
    return [
        *(f"{test} is on no list" for test in sorted(set(tests) - set(listed))),
        *(f"{test} is no test of the suite" for test in sorted(set(listed) - set(tests))),
        *(f"{test} is listed twice" for test in sorted(set(listed)) if listed.count(test) > 1),
        *(f"{test} is left out without a reason" for test, why in out.items() if not why),
    ]


def _tests(path):
    return [line.partition(": ")[0] for line in _lines(path)]


def folder(name):
    """Where the sources `name` are unpacked; not there yet where nobody has needed them."""
    return cache_dir() / "foreign" / name


def run(command, cwd, what):
    """Runs a step of getting a suite; skips or fails with `what` where it can't be done."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as broken:
        skip_or_fail(f"{what}: {broken}")
    if done.returncode != 0:
        skip_or_fail(f"{what}: {(done.stdout + done.stderr)[-1500:]}")


def unpack(archive, place):
    """Unpacks an archive of one folder as `place`, whole or not at all."""
    parts = place.with_suffix(".parts")
    shutil.rmtree(parts, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(parts, filter="data")
    (top,) = parts.iterdir()
    top.rename(place)
    parts.rmdir()


def python_source(package):
    """The folder of the source distribution of `package`, in the version that is installed."""
    release = version(package)
    place = folder(f"{package}-{release}")
    if not place.is_dir():
        place.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        # Only its metadata is built; setuptools is here.
        command += ["--no-binary", ":all:", "--no-build-isolation", f"{package}=={release}"]
        run(command, place.parent, f"pip can't download the sources of {package} {release}")
        (archive,) = place.parent.glob(f"{package.replace('-', '_')}-{release}.tar.gz")
        unpack(archive, place)
    return place
