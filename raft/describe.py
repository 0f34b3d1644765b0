"""DescribeQuorum 0-2: who votes and observes, and how far each of them is (KIP-595, KIP-836)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from net.handlers import Api, Request
from raft.config import TOPIC, RaftConfig
from raft.core import QuorumCore
from raft.roles import Leader, Progress
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import fill, response_class, response_module
from world.env import Clock

# One topic and one partition are there to be asked for, and each time that they are costs an answer
# with all voters and observers.
_MAX_ELEMENTS = 10


class DescribeQuorum:
    """The handler; only the leader can tell."""

    def __init__(self, config: RaftConfig, clock: Clock, core: Callable[[], QuorumCore]) -> None:
        self._config = config
        self._clock = clock
        self._core = core

    def apis(self) -> list[Api]:
        return [Api(ApiKey.DESCRIBE_QUORUM, 0, 2, self._handle, max_elements=_MAX_ELEMENTS)]

    def _handle(self, request: Request) -> Any:
        entity = request.entity()
        module: Any = response_module(ApiKey.DESCRIBE_QUORUM, request.api_version)
        topics = []
        for topic in entity.topics:
            partitions = []
            for part in topic.partitions:
                if topic.topic_name == TOPIC and part.partition_index == 0:
                    partitions.append(self._partition(module))
                else:
                    partitions.append(
                        self._error(
                            module, part.partition_index, ErrorCode.unknown_topic_or_partition
                        )
                    )
            topics.append(
                module.TopicData(topic_name=topic.topic_name, partitions=tuple(partitions))
            )
        return fill(
            response_class(ApiKey.DESCRIBE_QUORUM, request.api_version),
            error_code=ErrorCode.none,
            error_message=None,
            topics=tuple(topics),
            nodes=self._nodes(module) if request.api_version >= 2 else (),
        )

    def _error(self, module: Any, index: int, error: ErrorCode) -> Any:
        q = self._core().state
        return fill(
            module.PartitionData,
            partition_index=index,
            error_code=error,
            error_message=None,
            leader_id=q.told_leader_id,
            leader_epoch=q.epoch,
            high_watermark=-1,
            current_voters=(),
            observers=(),
        )

    def _partition(self, module: Any) -> Any:
        q = self._core().state
        role = q.role
        if not isinstance(role, Leader):
            return self._error(module, 0, ErrorCode.not_leader_or_follower)
        voters = []
        for voter_id in q.voters.ids:
            if voter_id == q.node_id and not q.is_voter:
                # Another disk of this node, of which nothing is known.
                voters.append(self._progress(module, Progress(q.voters.key_of(voter_id))))
            elif voter_id == q.node_id:
                now = self._clock.wall_ms()
                voters.append(
                    self._replica(module, voter_id, q.key.directory_id, q.log.end, now, now)
                )
            else:
                voters.append(self._progress(module, role.voters[voter_id]))
        observers = [self._progress(module, role.observers[key]) for key in role.observers]
        return fill(
            module.PartitionData,
            partition_index=0,
            error_code=ErrorCode.none,
            error_message=None,
            leader_id=q.node_id,
            leader_epoch=q.epoch,
            high_watermark=q.high_watermark if role.committed_in_epoch else -1,
            current_voters=tuple(voters),
            observers=tuple(observers),
        )

    def _progress(self, module: Any, progress: Progress) -> Any:
        return self._replica(
            module,
            progress.key.node_id,
            progress.key.directory_id,
            progress.end_offset,
            self._wall(progress.last_fetch_ms),
            self._wall(progress.caught_up_ms),
        )

    def _wall(self, at_ms: int) -> int:
        """A time of the monotonic clock as a date; -1 stays unknown."""
        if at_ms < 0:
            return -1
        return self._clock.wall_ms() - (self._clock.now_ms() - at_ms)

    @staticmethod
    def _replica(
        module: Any, node_id: int, directory_id: Any, end: int, fetched: int, caught_up: int
    ) -> Any:
        return fill(
            module.ReplicaState,
            replica_id=node_id,
            replica_directory_id=directory_id,
            log_end_offset=end,
            last_fetch_timestamp=fetched,
            last_caught_up_timestamp=caught_up,
        )

    def _nodes(self, module: Any) -> tuple[Any, ...]:
        name = self._config.listener_name
        nodes = []
        for voter in self._core().state.voters:
            address = voter.endpoints.get(name)
            listeners: tuple[Any, ...] = ()
            if address is not None:
                listeners = (module.Listener(name=name, host=address[0], port=address[1]),)
            nodes.append(module.Node(node_id=voter.key.node_id, listeners=listeners))
        return tuple(nodes)
