"""Starts Spark for one command, or for a test run, and spreads work over it."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from spark_audit import register
from spark_audit.files import AuditError
from spark_audit.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")
Runner = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]

# Quick to start, slower in long runs: right for a command, wrong for a cluster's days of work.
_SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}
_TRACEBACK = "Traceback (most recent call last):"


def check_installed() -> None:
    """AuditError that names the extra where pyspark and what goes with it is missing."""
    # Only looked for: to import them takes a second, which a mistyped path need not wait for.
    needed = ("pyspark", "pyarrow", "pandas", "numpy")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise AuditError(
            f"audits need {', '.join(missing)}, which is not installed:"
            " pip install 'pykraft[audit]'"
        )


def _worker_path() -> None:
    """Lets Python workers import the packages that this process imports."""
    root = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH", "")
    if root not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = root + (os.pathsep + known if known else "")


def start(
    master: str | None = None, *, app: str = "pykraft audit", quiet: bool = False
) -> SparkSession:
    """A session on `master`, by default on all cores of this machine.

    Inside spark-submit the session that it prepared is used as it is.
    """
    check_installed()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        master = master or "local[*]"
        if master.startswith("local"):
            os.environ["JAVA_HOME"] = str(find_java())
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            _worker_path()
            builder = builder.config("spark.driver.extraJavaOptions", _SHORT_RUN)
            for key, value in _SETTINGS.items():
                builder = builder.config(key, value)
    if master:
        builder = builder.master(master)
    with _quiet_launch(quiet and not submitted):
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            raise AuditError(f"Spark did not start: {one_line(error)}") from error
    register(spark)
    return spark


def one_line(error: BaseException) -> str:
    """What a Spark error says, in one line: our own error inside it, if there is one, or with what
    a Python worker raised."""
    rows = [line for line in str(error).splitlines() if line.strip()]
    lines = [line.strip() for line in rows]
    for line in reversed(lines):
        if "AuditError: " in line:
            return line.partition("AuditError: ")[2]
    if not lines:
        return repr(error)
    last = max((at for at, line in enumerate(lines) if line.endswith(_TRACEBACK)), default=None)
    if last is None:
        return lines[0]
    # All of a traceback is indented but the exception that it ends with.
    raised = next((row for row in rows[last + 1 :] if not row[0].isspace()), "")
    return f"{lines[0].removesuffix(_TRACEBACK).rstrip()} {raised}".strip()


@contextmanager
def _quiet_launch(quiet: bool) -> Iterator[None]:
    """Sends what the JVM and its workers print to a file: its greetings are not for the user."""
    if not quiet:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile(prefix="pykraft-spark-") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def in_process(function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """Runs the tasks here, one after the other."""
    return [function(task) for task in tasks]


def on_spark(spark: SparkSession) -> Runner:
    """A runner that gives each task a Spark task of its own; results keep their order.

    It goes by RDD: for a few tasks with Python objects that is two seconds less than a query.
    """

    def run(function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        if not tasks:
            return []
        found: list[Result] = (
            spark.sparkContext.parallelize(list(tasks), len(tasks)).map(function).collect()
        )
        return found

    return run
