"""Starting node processes and learning when they are ready.

A node is handed the write end of a pipe (`--ready-fd`): it writes one line once it can serve and
closes it. So the launcher knows the moment a node is ready, and at once when it has died instead.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykraft.cli import CommandError

LOG_TAIL_BYTES = 4000
_POLL_S = 0.05


class NodeEnded(CommandError):
    """Nodes ended instead of getting ready; `exit_codes` by node id."""

    def __init__(self, message: str, exit_codes: Mapping[int, int]) -> None:
        super().__init__(message)
        self.exit_codes = exit_codes


@dataclass(frozen=True, slots=True)
class Starting:
    """A process that was started and has not said yet that it is ready."""

    node_id: int
    metrics: str
    ready_fd: int
    log: Path
    process: subprocess.Popen[bytes]


def launch(
    node_id: int, metrics: str, directory: Path, record: Callable[[Path, int], None]
) -> Starting:
    """Starts the node in `directory`, detached, isolated from the caller's folder and variables.
    `metrics` is where it will answer /readyz."""
    log = directory / "node.log"
    read_end, write_end = os.pipe()
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                # -I: the caller's folder and PYTHON* variables must not change what is imported.
                [
                    sys.executable,
                    "-I",
                    "-m",
                    "pykraft",
                    "server",
                    "server.properties",
                    "--ready-fd",
                    str(write_end),
                ],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(write_end,),
            )
    finally:
        os.close(write_end)
    record(directory, process.pid)
    return Starting(node_id, metrics, read_end, log, process)


def wait_until_ready(nodes: Sequence[Starting], timeout_s: float) -> None:
    """Returns when every node has said it is ready.

    Raises NodeEnded, with the end of the node's log, where one ended, and CommandError, with what
    they wait for, where the time is over; the others are left running.
    """
    deadline = time.monotonic() + timeout_s
    failed: list[Starting] = []
    with selectors.DefaultSelector() as selector:
        for node in nodes:
            selector.register(node.ready_fd, selectors.EVENT_READ, node)
        while selector.get_map():
            events = selector.select(max(0.0, deadline - time.monotonic()))
            if not events:
                break
            for key, _ in events:
                if not os.read(key.fd, 64):
                    failed.append(key.data)
                selector.unregister(key.fd)
        late = [key.data for key in selector.get_map().values()]
    for node in nodes:
        os.close(node.ready_fd)
    if failed:
        codes = {node.node_id: node.process.wait(timeout=10) for node in failed}
        raise NodeEnded("; ".join(_why_ended(node) for node in failed), codes)
    if late:
        waiting = "; ".join(
            f"node {node.node_id} (log: {node.log}): {_reason(read_readiness(node.metrics))}"
            for node in late
        )
        raise CommandError(f"not ready after {timeout_s:.0f} s, still starting: {waiting}")


def wait_until_answered(
    node_id: int, metrics: str, process: Callable[[], object], timeout_s: float
) -> None:
    """Returns when a node that was started before says that it is ready.

    `process` gives its process while that lives. Raises CommandError where it ends or the time is
    over, with the node's own reason.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        readiness = read_readiness(metrics)
        if readiness.get("state") == "ready":
            return
        if not process():
            raise CommandError(f"node {node_id} ended while it was starting")
        if time.monotonic() > deadline:
            raise CommandError(
                f"node {node_id} runs but is not ready after {timeout_s:.0f} s: "
                f"{_reason(readiness)}"
            )
        time.sleep(_POLL_S)


def _reason(readiness: Mapping[str, Any]) -> str:
    """Why a node isn't ready, in its own words."""
    return str(readiness["reason"] or "it is by now") if readiness else "it doesn't answer"


def _why_ended(node: Starting) -> str:
    code = node.process.returncode
    return (
        f"node {node.node_id} ended with exit code {code} (log: {node.log}): {_last_line(node.log)}"
    )


def _last_line(log: Path) -> str:
    """What the log's last line says, in one short line."""
    tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    if not tail:
        return "it wrote nothing"
    try:
        entry = json.loads(tail[-1])
        return str(entry.get("reason") or entry.get("event"))
    except ValueError:
        return tail[-1]


def read_readiness(metrics: str, timeout_s: float = 2.0) -> dict[str, Any]:
    """What the node's /readyz says; empty where it doesn't answer yet."""
    try:
        with urllib.request.urlopen(f"http://{metrics}/readyz", timeout=timeout_s) as response:
            body = response.read()
    except urllib.error.HTTPError as error:
        body = error.read()
    except OSError:
        return {}
    document: dict[str, Any] = json.loads(body)
    return document
