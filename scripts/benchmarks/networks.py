"""A network of a few processes that can be cut: namespaces joined by a bridge (Linux, root)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from benchmarks.servers import BenchFailed


class Network:
    """`hosts` are the members' addresses, reached from this process too. For a `with`."""

    def __init__(self, count: int, number: int = 0) -> None:
        # Names are the machine's: the process id keeps two runs apart.
        self._mark = f"pk{os.getpid() % 100_000}x{number}"
        self._bridge = f"{self._mark}b"
        self._prefix = f"10.{200 + number}.{os.getpid() % 250}"
        self.hosts = [f"{self._prefix}.{index + 2}" for index in range(count)]
        self._made: list[Sequence[str]] = []  # what undoes what was made

    def __enter__(self) -> Network:
        try:
            self._build()
        except (OSError, subprocess.CalledProcessError) as reason:
            self.close()
            detail = getattr(reason, "stderr", b"") or b""
            raise BenchFailed(
                f"failover/cut: network namespaces can't be had here: {reason} "
                f"{detail.decode(errors='replace').strip()}"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _build(self) -> None:
        self._make(("link", "add", self._bridge, "type", "bridge"), ("link", "del", self._bridge))
        _ip("addr", "add", f"{self._prefix}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for index, host in enumerate(self.hosts):
            space, outer, inner = self._space(index), self._outer(index), f"{self._mark}i{index}"
            self._make(("netns", "add", space), ("netns", "del", space))
            self._make(
                ("link", "add", outer, "type", "veth", "peer", "name", inner),
                ("link", "del", outer),
            )
            _ip("link", "set", inner, "netns", space)
            _ip("link", "set", outer, "master", self._bridge, "up")
            _ip("-n", space, "addr", "add", f"{host}/24", "dev", inner)
            _ip("-n", space, "link", "set", inner, "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _make(self, do: Sequence[str], undo: Sequence[str]) -> None:
        _ip(*do)
        self._made.append(undo)

    def _space(self, index: int) -> str:
        return f"{self._mark}n{index}"

    def _outer(self, index: int) -> str:
        return f"{self._mark}o{index}"

    def within(self, index: int, command: list[str]) -> list[str]:
        """The command, run in a member's namespace."""
        return ["ip", "netns", "exec", self._space(index), *command]

    def cut(self, index: int) -> None:
        """Nothing gets to or from this member any more; it can't tell from a silent peer."""
        _ip("link", "set", self._outer(index), "nomaster")

    def heal(self, index: int) -> None:
        """It can be reached again."""
        _ip("link", "set", self._outer(index), "master", self._bridge)

    def close(self) -> None:
        """Undoes all that was made; the processes within must have ended."""
        for undo in reversed(self._made):
            subprocess.run(["ip", *undo], capture_output=True, check=False)
        self._made = []


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=True)
