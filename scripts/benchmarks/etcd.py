"""etcd, three members on this machine: the Raft store that metadata-write is held against."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.quorums import kill_all
from benchmarks.servers import BenchFailed
from pykraft.local_cluster import default_directory

MEMBERS = 3
PACKAGE = "etcd-server"


def program() -> str:
    """etcd on the path, or Debian's package unpacked next to the clusters; BenchFailed if neither
    is to be had."""
    found = shutil.which("etcd")
    if found is not None:
        return found
    cache = (default_directory() / "etcd").resolve()
    unpacked = cache / "usr" / "bin" / "etcd"
    if not unpacked.exists():
        cache.mkdir(parents=True, exist_ok=True)
        try:
            _quiet("apt-get", "download", PACKAGE, directory=cache)
            package = max(cache.glob(f"{PACKAGE}_*.deb"))
            _quiet("dpkg", "-x", str(package), str(cache), directory=cache)
        except (OSError, subprocess.CalledProcessError, ValueError) as reason:
            raise BenchFailed(
                f"--vs etcd: there is no etcd here, and Debian's {PACKAGE} can't be had: {reason}"
            ) from None
    return str(unpacked)


def _quiet(*command: str, directory: Path) -> None:
    subprocess.run(command, cwd=directory, capture_output=True, check=True)


def version() -> str:
    """What etcd calls itself."""
    done = subprocess.run([program(), "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"etcd Version: (\S+)", done.stdout)
    return match[1] if match else "unknown"


class EtcdQuorum:
    """Every setting that isn't an address at its default: fsync before an entry counts."""

    def __init__(self, directory: Path, first_port: int) -> None:
        self.label = f"etcd {version()}"
        self._directory = directory
        self._clients = [f"127.0.0.1:{first_port + 2 * index}" for index in range(MEMBERS)]
        self._peers = [f"127.0.0.1:{first_port + 2 * index + 1}" for index in range(MEMBERS)]
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def addresses(self) -> list[str]:
        """Where clients connect to."""
        return self._clients

    def start(self) -> None:
        """Starts the members; doesn't wait for them."""
        names = [f"m{index}" for index in range(MEMBERS)]
        everyone = ",".join(
            f"{name}=http://{peer}" for name, peer in zip(names, self._peers, strict=True)
        )
        for name, client, peer in zip(names, self._clients, self._peers, strict=True):
            directory = self._directory / name
            directory.mkdir(parents=True)
            words = [
                program(),
                *("--name", name, "--data-dir", str(directory / "data")),
                *("--listen-client-urls", f"http://{client}"),
                *("--advertise-client-urls", f"http://{client}"),
                *("--listen-peer-urls", f"http://{peer}"),
                *("--initial-advertise-peer-urls", f"http://{peer}"),
                *("--initial-cluster", everyone, "--initial-cluster-state", "new"),
            ]
            with (directory / "out.log").open("ab") as output:
                self._processes.append(
                    subprocess.Popen(
                        words,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )

    def pids(self) -> list[int]:
        """The processes; BenchFailed where one has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise BenchFailed(f"etcd ended, see {self._directory}")
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        """Ends every process."""
        kill_all(self._processes)
        self._processes = []
