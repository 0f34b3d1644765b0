"""Other projects' own test suites as judges: where their sources are, and their lists.

A suite is taken from a package registry when its tests run and kept in the tests' cache; no line of
it is in this repository. Two lists say what becomes of its tests:

    tests/foreign/SUITE.txt            a test a line, all of which must pass; one with ": long"
                                       behind it is only asked where PYKRAFT_FOREIGN is "all"
    tests/foreign/SUITE_left_out.txt   a test a line, with ": " and why it can't be asked

A test of the suite that is on neither list fails ours, so that somebody looks at a new version.
`TEST(PART)` is one part of a test whose other parts are listed for themselves.
"""

import os
import re
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
LONG = ": long"


@dataclass(frozen=True)
class Verdict:
    """What a suite said of one of its tests: `passed`, `failed` or `skipped`, and why."""

    outcome: str
    reason: str = ""


def allowed(suite):
    """The tests that must pass, in the list's order."""
    return [line.removesuffix(LONG) for line in _lines(FOREIGN / f"{suite}.txt")]


def asked(suite):
    """Those of them that this run asks: without the long ones, unless all are wanted."""
    if os.environ.get("PYKRAFT_FOREIGN") == "all":
        return allowed(suite)
    return [line for line in _lines(FOREIGN / f"{suite}.txt") if not line.endswith(LONG)]


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
    whole = {one if one in tests else without_part(one) for one in listed}
    return [
        *(f"{test} is on no list" for test in sorted(set(tests) - whole)),
        *(f"{test} is no test of the suite" for test in sorted(whole - set(tests))),
        *(f"{test} is listed twice" for test in sorted(set(listed)) if listed.count(test) > 1),
        *(f"{test} is left out without a reason" for test, why in out.items() if not why),
    ]


def without_part(name):
    """TEST of `TEST(PART)`, or what has no part as it is."""
    return re.sub(r"\(.*\)$", "", name)


def _tests(path):
    return [line.partition(": ")[0] for line in _lines(path)]


def folder(name):
    """Where the sources `name` are unpacked; not there yet where nobody has needed them."""
    return cache_dir() / "foreign" / name


def run(command, cwd, what, timeout_s=FETCH_S):
    """Runs a step of getting a suite; skips or fails with `what` where it can't be done."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False
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


def debian_source(package, release, place):
    """Unpacks the upstream sources of a Debian source package as `place`.

    The machine need not have source packages among its apt sources: the lists of those that it
    has are fetched as lists of sources, into a folder of our own.
    """
    apt = folder("apt")
    (apt / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (apt / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    sources = apt / "all.sources"
    sources.write_text("\n".join(_deb822_sources()))
    options = [f"Dir::Etc::sourcelist={sources}", f"Dir::Etc::sourceparts={apt / 'none'}"]
    options += [f"Dir::State::lists={apt / 'lists'}", f"Dir::Cache={apt}", "APT::Sandbox::User="]
    get = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    what = f"apt can't download the sources of {package} {release}"
    run([*get, "update"], apt, what)
    run([*get, "source", "--download-only", f"{package}={release}"], apt, what)
    (archive,) = apt.glob(f"{package}_{release.rpartition('-')[0]}.orig.tar.*")
    unpack(archive, place)


def _deb822_sources():
    """The machine's apt sources, each for source packages."""
    parts = Path("/etc/apt/sources.list.d")
    texts = [path.read_text() for path in sorted(parts.glob("*.sources"))]
    for path in [Path("/etc/apt/sources.list"), *sorted(parts.glob("*.list"))]:
        lines = path.read_text().splitlines() if path.is_file() else []
        texts += filter(None, map(_deb822, lines))
    return [re.sub(r"(?m)^Types:.*$", "Types: deb-src", text) + "\n" for text in texts]


def _deb822(line):
    """A `deb` line of a sources.list in the other format, None for any other line."""
    match = re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s*(.*)", line)
    if match is None:
        return None
    address, suite, components = match.groups()
    text = f"Types: deb-src\nURIs: {address}\nSuites: {suite}\n"
    return text + (f"Components: {components}\n" if components else "")
