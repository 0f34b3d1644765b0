"""What the kernel counts for processes: CPU time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system seconds of living processes so far, ended threads included."""
    total = 0
    for pid in pids:
        # After the name in brackets, which may hold spaces: utime and stime are fields 14 and 15.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total * TICK_S


def family_cpu_seconds() -> float:
    """The same of this process and all below it, those that ended and were waited for included."""
    me = psutil.Process()
    times = [process.cpu_times() for process in [me, *me.children(recursive=True)]]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def pss_mb(pids: Sequence[int]) -> float:
    """Memory in MB, what is shared counted in proportion (Pss)."""
    kilobytes = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                kilobytes += int(line.split()[1])
    return kilobytes * 1024 / 1e6


def idle_cpu_share(pids: Sequence[int], seconds: float) -> float:
    """CPU seconds per second, over a wait of `seconds`."""
    begun, used = time.monotonic(), cpu_seconds(pids)
    time.sleep(seconds)
    return (cpu_seconds(pids) - used) / (time.monotonic() - begun)


def resident_file(path: Path, size: int) -> None:
    """Writes a file whose pages are then in memory."""
    chunk = memoryview(os.urandom(1 << 20))
    with path.open("wb", buffering=0) as file:
        for _ in range(-(-size // len(chunk))):
            file.write(chunk)
