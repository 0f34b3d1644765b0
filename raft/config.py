"""A quorum member's configuration, by Kafka's names and with Kafka's defaults (KIP-595)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from raft.state import QuorumConfig
from raft.voters import MAX_KRAFT_VERSION, ReplicaKey, Voter

TOPIC = "__cluster_metadata"
DIRECTORY = f"{TOPIC}-0"


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """`voters` are those of `controller.quorum.voters`, by id: in force as long as log and
    snapshots name none. `bootstrap` are servers to ask for the quorum. Only a controller, with
    `observer` False, can be a voter. Sizes in bytes."""

    node_id: int
    directory_id: UUID
    cluster_id: str
    voters: Mapping[int, tuple[str, int]]
    listener_name: str = "CONTROLLER"
    observer: bool = False
    # Where this node's own controller listener can be reached, for those who must be told.
    advertised: tuple[str, int] | None = None
    bootstrap: tuple[tuple[str, int], ...] = ()
    auto_join: bool = False
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 << 20
    fetch_snapshot_max_bytes: int = 8 << 20
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000
    retention_bytes: int = 100 << 20
    retention_ms: int = 7 * 86_400_000

    @property
    def quorum(self) -> QuorumConfig:
        return QuorumConfig(
            election_timeout_ms=self.election_timeout_ms,
            fetch_timeout_ms=self.fetch_timeout_ms,
            election_backoff_max_ms=self.election_backoff_max_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            fetch_max_wait_ms=self.fetch_max_wait_ms,
            listener_name=self.listener_name,
            auto_join=self.auto_join,
        )

    @property
    def own_address(self) -> tuple[str, int] | None:
        """Where this node is reached by other controllers."""
        return self.advertised or self.voters.get(self.node_id)

    @property
    def own_voter(self) -> Voter:
        """This node as it is, or would be, as a voter."""
        address = None if self.observer else self.own_address
        return Voter(
            ReplicaKey(self.node_id, self.directory_id),
            {} if address is None else {self.listener_name: address},
            0,
            MAX_KRAFT_VERSION,
        )
