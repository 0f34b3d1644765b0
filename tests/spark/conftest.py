"""One Spark session for all tests that need one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with the `kraft` source; skips where pyspark or Java is missing."""
    pytest.importorskip("pyspark")
    from spark_audit.files import AuditError
    from spark_audit.session import start

    os.environ["SPARK_LOCAL_DIRS"] = str(tmp_path_factory.mktemp("spark"))
    try:
        session = start("local[2]", app="tests", quiet=True)
    except AuditError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    yield session
    session.stop()


@pytest.fixture
def commands(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `pykraft audit …` in this process and on the tests' session: gives the exit code."""
    import argparse

    from pykraft.audit_cli import add_commands

    class Lasting:
        """The session, but for its end."""

        def stop(self) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

    monkeypatch.setattr("spark_audit.session.start", lambda *a, **k: Lasting())

    def run(*words: str | Path) -> int:
        parser = argparse.ArgumentParser()
        add_commands(parser.add_subparsers(required=True))
        args = parser.parse_args([str(word) for word in words])
        code: int = args.run(args)
        return code

    return run
