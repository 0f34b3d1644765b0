"""The test process's end of the link to a keeper, the process that owns a cluster.

One JSON object a line each way: `{"id", "do", "with"}` to the keeper, `{"id", "value"}` or
`{"id", "error", "code"}` back. All waiting, timing and cleaning up is the keeper's: a test may
freeze its clock, patch its modules, change its folder, or die.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from operator import methodcaller
from typing import Any

KEEPER = "pykraft.testing.keeper"


class ClusterError(Exception):
    """What a cluster for tests refuses or can't do. `code` is Kafka's name for it where there is
    one (TOPIC_ALREADY_EXISTS), else None."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


HIDDEN = methodcaller("errisinstance", ClusterError)
"""As `__tracebackhide__`, has pytest show no frames of ours for what says all that there is."""

__tracebackhide__ = HIDDEN


class Link:
    """A keeper that was started, until `end`. Any thread may call."""

    def __init__(self, directory: str | None) -> None:
        """`directory` is where the cluster will be; None: a temporary one, removed at the end."""
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._number = 0
        # -I and a session of its own: neither the caller's folder and variables nor a Ctrl-C
        # that is meant for the tests reach it. It ends when its standard input does.
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-m", KEEPER, str(self._owner), directory or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The keeper's process id."""
        return self._keeper.pid

    def call(self, do: str, **arguments: Any) -> Any:
        """What the keeper answers. Raises ClusterError, also where the keeper has ended."""
        if os.getpid() != self._owner:
            raise ClusterError(
                "a forked process can't use its parent's cluster, only its addresses"
            )
        with self._lock:
            self._number += 1
            request = {"id": self._number, "do": do, "with": arguments}
            answer = self._exchange(json.dumps(request).encode() + b"\n")
        if "error" in answer:
            raise ClusterError(answer["error"], answer["code"])
        return answer["value"]

    def _exchange(self, request: bytes) -> dict[str, Any]:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        try:
            self._keeper.stdin.write(request)
            self._keeper.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._gone() from None
        # An earlier call may have been interrupted before its answer came.
        for line in self._keeper.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer["id"] == self._number:
                return answer
        raise self._gone()

    def _gone(self) -> ClusterError:
        return ClusterError(f"the cluster's keeper (pid {self._keeper.pid}) has ended")

    def end(self) -> tuple[int, str]:
        """Lets the keeper end the nodes and itself; its exit code and what it had to complain of.

        In a forked process nothing happens: the cluster is its parent's.
        """
        if os.getpid() != self._owner:
            return 0, ""
        with self._lock:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            assert self._keeper.stderr is not None
            with suppress(BrokenPipeError):  # it has ended: its exit code says how
                self._keeper.stdin.close()
            complaint = self._keeper.stderr.read().decode(errors="replace").strip()
            code = self._keeper.wait()
            self._keeper.stdout.close()
            self._keeper.stderr.close()
            return code, complaint


def end_what_is_left(directory: str) -> None:
    """Ends the nodes of a keeper that was killed and could not."""
    subprocess.run([sys.executable, "-I", "-m", KEEPER, "--end", directory], cwd="/", check=True)
