"""JVM Kafka for tests: its classpath from Maven, and small Java programs run on it."""

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import NoReturn

import pytest

HERE = Path(__file__).resolve().parent
DEFAULT_VERSION = "4.1.1"
NEWEST_VERSION = "4.4.0"
# Short programs: quick to start, silent as long as nothing is wrong.
JVM_OPTIONS = (
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


def skip_or_fail(reason: str) -> NoReturn:
    """What a user's machine lacks is skipped with its reason; CI has to have it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def cache_dir() -> Path:
    """Where resolved classpaths and compiled classes stay between test runs."""
    home = os.environ.get("PYKRAFT_HOME")
    base = Path(home) if home else Path(tempfile.gettempdir()) / f"pykraft-interop-{os.getuid()}"
    path = base / "interop"
    path.mkdir(parents=True, exist_ok=True)
    return path


def java() -> str:
    """The java program; skips or fails where there is none."""
    found = shutil.which("java")
    return found if found is not None else skip_or_fail("no java on this machine")


def _usable(text: str) -> bool:
    return bool(text) and all(Path(part).exists() for part in text.split(os.pathsep))


def resolved(pom: Path, what: str, *options: str) -> str:
    """The classpath of a pom.xml's dependencies, resolved by Maven and remembered as `what`."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    cached = cache_dir() / f"classpath-{what}-{digest}.txt"
    if cached.exists() and _usable(cached.read_text()):
        return cached.read_text()
    maven = shutil.which("mvn")
    if maven is None:
        skip_or_fail("no Maven on this machine")
    partial = cached.with_suffix(f".{os.getpid()}")
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        "--file",
        str(pom),
        *options,
        f"-Dmdep.outputFile={partial}",
        "dependency:build-classpath",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0 or not partial.exists():
        skip_or_fail(f"Maven cannot resolve {what}: {(done.stdout + done.stderr)[-500:]}")
    partial.replace(cached)
    return cached.read_text()


def classpath(version: str = DEFAULT_VERSION) -> str:
    """The classpath of a Kafka release with its tools."""
    return resolved(HERE / "pom.xml", version, f"-Dkafka.version={version}")


def compiled(source: str, version: str = DEFAULT_VERSION) -> str:
    """Compile tests/interop/java/<source>.java against a release; returns the full classpath."""
    javac = shutil.which("javac")
    if javac is None:
        skip_or_fail("no javac on this machine")
    path = HERE / "java" / f"{source}.java"
    classes = cache_dir() / f"classes-{version}-{source}"
    base = classpath(version)
    mark = classes / f"{source}.class"
    newest = max(one.stat().st_mtime for one in path.parent.glob("*.java"))
    if not mark.exists() or mark.stat().st_mtime < newest:
        sources = str(HERE / "java")
        options = ["-nowarn", "-implicit:class", "-sourcepath", sources, "-d", str(classes)]
        command = [javac, *options, "-cp", base, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
    return f"{classes}{os.pathsep}{base}"


def run_java(main: str, arguments: list[str], path: str, *, timeout_s: float = 600) -> str:
    """Run a main class and return what it printed; its error output is the failure's text."""
    command = [java(), *JVM_OPTIONS, "-cp", path, main, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{main} exited {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


class Tools:
    """Kafka's command line tools, run one after the other in one JVM; for a `with`."""

    def __init__(self, version: str = DEFAULT_VERSION) -> None:
        command = [java(), *JVM_OPTIONS, "-cp", compiled("RunTools", version), "RunTools"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Tools":
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, main: str, *arguments: object, timeout_s: float = 60) -> tuple[int, str]:
        """Run a tool's main class; returns its exit code and all that it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, (main, *arguments))) + "\n")
        self._process.stdin.flush()
        output: list[str] = []
        # A tool that hangs is ended with its JVM, and the missing last line tells.
        watch = threading.Timer(timeout_s, self._process.kill)
        watch.start()
        try:
            for line in self._process.stdout:
                if line.startswith("@@ "):
                    return int(line[3:]), "".join(output).strip()
                output.append(line)
        finally:
            watch.cancel()
        raise AssertionError(f"{main} {arguments}: no end in {timeout_s} s: {''.join(output)}")
