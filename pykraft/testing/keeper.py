"""The process that owns a cluster for tests: starts its nodes, and ends with the test process.

    python -I -m pykraft.testing.keeper PID DIRECTORY     by pykraft.testing.link
    python -I -m pykraft.testing.keeper --end DIRECTORY   ends what a killed keeper left

It serves the requests of `link` on its standard input. When that ends, or the process PID does
(others may have inherited the pipe), or on SIGTERM, it kills all its children, which are the
nodes, and removes the directory if it made it. So no end of a test process, SIGKILL among them,
leaves a node or a file behind.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, NoReturn

import psutil

from pykraft.imports import without

with without("hypothesis"):
    from pykraft.cli import CommandError
    from pykraft.testing.kept_cluster import KeptCluster
    from wire.errors import KafkaError

_LOOK_S = 1.0  # how often to look whether the test process still lives
_END_S = 10.0


class _Over(BaseException):
    """The test process has ended, or wants no more."""


def main(arguments: list[str]) -> int:
    """Keeps a cluster until the test process is done with it or gone."""
    if arguments[0] == "--end":
        _end_left(Path(arguments[1]))
        return 0
    test_process, directory = int(arguments[0]), arguments[1]
    # What a library prints must not get among the answers.
    answers = os.dup(1)
    os.dup2(2, 1)
    requests: SimpleQueue[bytes] = SimpleQueue()
    signal.signal(signal.SIGTERM, _end)
    path = Path(directory or tempfile.mkdtemp(prefix="pykraft-"))
    try:
        threading.Thread(target=_listen, args=(requests, test_process), daemon=True).start()
        _serve(KeptCluster(path), requests, answers)
    except _Over:
        return 0
    finally:
        _kill(psutil.Process().children(recursive=True))
        if not directory:
            shutil.rmtree(path)


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    # Once: what follows is the cleaning up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Over


def _listen(requests: SimpleQueue[bytes], test_process: int) -> None:
    """Takes requests in, and interrupts whatever is going on when there will be no more."""
    received = b""
    while os.getppid() == test_process:
        if not select.select([0], [], [], _LOOK_S)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            requests.put(line)
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(cluster: KeptCluster, requests: SimpleQueue[bytes], answers: int) -> NoReturn:
    while True:
        _reap()
        try:
            request = json.loads(requests.get(timeout=_LOOK_S))
        except Empty:
            continue
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            call: Callable[..., Any] = getattr(cluster, request["do"])
            answer["value"] = call(**request["with"])
        except KafkaError as error:
            name = error.code.name.upper()
            answer.update(error=f"{name}: {error.message}", code=name)
        except (CommandError, OSError) as error:
            answer.update(error=str(error), code=None)
        os.write(answers, json.dumps(answer).encode() + b"\n")


def _reap() -> None:
    """Takes note of nodes that have ended, so that nobody meets a zombie. Never while a request is
    carried out: a start wants the exit codes itself."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        process.kill()
    _, alive = psutil.wait_procs(processes, timeout=_END_S)
    if alive:
        raise SystemExit(f"processes that survive SIGKILL: {alive}")


def _end_left(path: Path) -> None:
    """Kills the nodes that are written down in the directory."""
    cluster = KeptCluster(path)
    _kill(list(cluster.processes().values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
