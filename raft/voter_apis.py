"""AddRaftVoter 0-1, RemoveRaftVoter 0 and UpdateRaftVoter 0 (KIP-853, KIP-1186): Kafka's requests
to messages of the core, and its answers back. Checked here: the cluster id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from net.handlers import Api, Later, Request
from raft.config import RaftConfig
from raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from raft.protocol import MAX_ELEMENTS, directory_of
from raft.voters import ReplicaKey, Voter
from wire.addresses import MOST_HOST, is_host
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import fill, millis, response_class, response_module

logger = structlog.get_logger("raft")
_MOST_LISTENERS = 32  # each goes into every VotersRecord, for every voter
_MOST_NAME = 255
_MOST_SHOWN = 80

Ask = Callable[[Request, VoterChangeRequest], Later]


class VoterApis:
    """Handlers; `ask` tells the core, whose answer goes through `reply`."""

    def __init__(self, config: RaftConfig, ask: Ask) -> None:
        self._config = config
        self._ask = ask

    def apis(self) -> list[Api]:
        """The table's entries."""
        return [
            Api(ApiKey.ADD_RAFT_VOTER, 0, 1, self._add, max_elements=MAX_ELEMENTS),
            Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, self._remove, max_elements=MAX_ELEMENTS),
            Api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, self._update, max_elements=MAX_ELEMENTS),
        ]

    def _add(self, request: Request) -> Any:
        entity = request.entity()
        refused = self._other_cluster(request, entity) or self._no_endpoints(request, entity)
        if refused is not None:
            return refused
        timeout_ms = max(0, round(entity.timeout.total_seconds() * 1000))
        until_committed = getattr(entity, "ack_when_committed", True)
        message = AddVoterRequest(_voter(entity), timeout_ms, until_committed)
        return self._ask(request, message)

    def _remove(self, request: Request) -> Any:
        entity = request.entity()
        refused = self._other_cluster(request, entity)
        if refused is not None:
            return refused
        return self._ask(request, RemoveVoterRequest(_key(entity)))

    def _update(self, request: Request) -> Any:
        entity = request.entity()
        refused = self._other_cluster(request, entity) or self._no_endpoints(request, entity)
        if refused is not None:
            return refused
        levels = entity.k_raft_version_feature
        voter = _voter(entity, levels.min_supported_version, levels.max_supported_version)
        return self._ask(request, UpdateVoterRequest(entity.current_leader_epoch, voter))

    def _other_cluster(self, request: Request, entity: Any) -> Any:
        """The refusal of a request that is meant for another cluster; None for ours."""
        asked, own = entity.cluster_id, self._config.cluster_id
        if asked is None or asked == own:
            return None
        response = VoterChangeResponse(
            ErrorCode.inconsistent_cluster_id,
            -1,
            -1,
            f"the request is for cluster {asked}, this is cluster {own}",
        )
        return self.reply(request.api_key, request.api_version, response, None)

    def _no_endpoints(self, request: Request, entity: Any) -> Any:
        """The refusal of listeners that nobody could ever reach: they would be in the log, and in
        everybody's hands. None where they are sound."""
        reason = _why_no_endpoints(entity.listeners)
        if reason is None:
            return None
        logger.warning("voter_listeners_refused", voter=entity.voter_id, reason=reason)
        response = VoterChangeResponse(ErrorCode.invalid_request, -1, -1, reason)
        return self.reply(request.api_key, request.api_version, response, None)

    def reply(
        self,
        api_key: int,
        version: int,
        response: VoterChangeResponse,
        leader_address: tuple[str, int] | None,
    ) -> Any:
        """The answer as Kafka puts it; UpdateRaftVoter's names the leader, no reason."""
        fields: dict[str, Any] = {"throttle_time": millis(0), "error_code": response.error}
        if api_key == ApiKey.UPDATE_RAFT_VOTER:
            module: Any = response_module(api_key, version)
            host, port = leader_address or ("", 0)
            fields["current_leader"] = module.CurrentLeader(
                leader_id=response.leader_id,
                leader_epoch=response.epoch,
                host=host,
                port=port,
            )
        else:
            fields["error_message"] = response.message
        return fill(response_class(api_key, version), **fields)


def _why_no_endpoints(listeners: Sequence[Any]) -> str | None:
    """What is wrong with a voter's listeners; whether the quorum's own is there is the core's."""
    if len(listeners) > _MOST_LISTENERS:
        return f"{len(listeners)} listeners; a voter may have {_MOST_LISTENERS}"
    names: dict[str, None] = {}
    for end in listeners:
        shown = end.name[:_MOST_SHOWN]
        if not 0 < len(end.name) <= _MOST_NAME:
            return (
                f"listener {shown!r}: a name of {len(end.name)} characters; "
                f"1 to {_MOST_NAME} are allowed"
            )
        if end.name in names:
            return f"listener {shown!r} is given twice"
        names[end.name] = None
        if not is_host(end.host):
            return (
                f"listener {shown!r}: host {end.host[:_MOST_SHOWN]!r} of {len(end.host)} "
                f"characters is neither an address nor a host name of up to {MOST_HOST} characters"
            )
        if not 0 < end.port < 65536:
            return f"listener {shown!r}: port {end.port}; 1 to 65535 are allowed"
    return None


def _key(entity: Any) -> ReplicaKey:
    return ReplicaKey(entity.voter_id, directory_of(entity.voter_directory_id))


def _voter(entity: Any, min_kraft_version: int = 0, max_kraft_version: int = 0) -> Voter:
    endpoints = {end.name: (end.host, end.port) for end in entity.listeners}
    return Voter(_key(entity), endpoints, min_kraft_version, max_kraft_version)
