"""Connections to the other members, one each, and the requests on them.

A member may come to be reached at another address: then the connection to the old one is left. A
connection is made when a request needs one; if that fails, so do the requests that waited,
and the core decides when to try again. A request that times out ends its connection: what was
sent on it must not be taken for something said later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from net.client import Connection
from net.errors import ConnectFailed, NetworkError, RequestTimedOut, UnsupportedVersion
from raft import protocol
from raft.config import RaftConfig
from raft.events import Disconnected, Event, RequestFailed, ResponseReceived
from raft.messages import AddVoterRequest, FetchRequest, Request
from raft.voters import Voter
from wire.apis import ApiKey
from wire.errors import DecodeError
from world.env import Env

logger = structlog.get_logger("raft")
CONNECT_TIMEOUT_MS = 1000
KRAFT_VERSION = "kraft.version"

_ASKED_OF_VOTERS = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
)


class _Peer:
    def __init__(self) -> None:
        self.address: tuple[str, int] | None = None
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.waiting: list[Request] = []
        # Why it refused our last request, None if it didn't: it asks for one log line, not for
        # one each time that we try again.
        self.refusal: str | None = None
        self.nonsense: str | None = None  # likewise, what was wrong with its answer


class Peers:
    """Sends requests by node id; tells the outcome of each by `tell`, never inside `send`.

    `of_other_cluster` is told the ids of those who say that we are of another cluster, as long as
    nobody has ever answered otherwise.
    """

    def __init__(
        self,
        env: Env,
        config: RaftConfig,
        address_of: Callable[[int], tuple[str, int] | None],
        tell: Callable[[Event], None],
        of_other_cluster: Callable[[Sequence[int]], None],
    ) -> None:
        self._env = env
        self._config = config
        self._address_of = address_of
        self._tell = tell
        self._of_other_cluster = of_other_cluster
        self._strangers: dict[int, None] = {}
        self._known = False  # somebody has taken us for one of the cluster
        self._peers: dict[int, _Peer] = {}
        self._closed = False

    def send(self, peer_id: int, request: Request) -> None:
        peer = self._peers.setdefault(peer_id, _Peer())
        connection = peer.connection
        if connection is not None and not connection.closed:
            if peer.address == self._address_of(peer_id):
                self._submit(peer_id, connection, request)
                return
            peer.connection = None  # so that nobody takes its end for the peer's
            connection.close()
        peer.waiting.append(request)
        if peer.connecting is None:
            peer.connecting = asyncio.get_running_loop().create_task(
                self._connect(peer_id, peer), name=f"raft-connect-{peer_id}"
            )

    async def _connect(self, peer_id: int, peer: _Peer) -> None:
        connection: Connection | None = None
        address = self._address_of(peer_id)
        if address is not None:
            try:
                connection = await Connection.connect(
                    self._env,
                    address[0],
                    address[1],
                    client_id=f"raft-client-{self._config.node_id}",
                    timeout_ms=CONNECT_TIMEOUT_MS,
                    on_close=lambda error: self._closed_by(peer_id, peer, address),
                )
            except ConnectFailed as error:
                logger.debug("raft_connect_failed", peer=peer_id, reason=str(error))
        peer.connecting, peer.address = None, address
        waiting, peer.waiting = peer.waiting, []
        if self._closed:
            if connection is not None:
                connection.close()
            return
        peer.connection = connection
        for request in waiting:
            if connection is None:
                self._tell(RequestFailed(peer_id, request))
            else:
                self._submit(peer_id, connection, request)

    def _closed_by(self, peer_id: int, peer: _Peer, address: tuple[str, int]) -> None:
        if peer.connection is None or peer.address != address:
            return  # left by us for another address
        peer.connection = None
        if not self._closed:
            self._tell_soon(Disconnected(peer_id))

    def _tell_soon(self, event: Event) -> None:
        asyncio.get_running_loop().call_soon(self._tell_unless_closed, event)

    def _tell_unless_closed(self, event: Event) -> None:
        if not self._closed:
            self._tell(event)

    def _submit(self, peer_id: int, connection: Connection, request: Request) -> None:
        key = protocol.API_KEYS[type(request)]
        try:
            version = connection.version(key)
            if version < protocol.min_version(request):
                raise UnsupportedVersion(key, f"{protocol.min_version(request)}+", f"{version}")
        except UnsupportedVersion:
            self._tell_soon(RequestFailed(peer_id, request, unsupported_version=True))
            return
        timeout_ms = self._config.request_timeout_ms
        if isinstance(request, FetchRequest):
            timeout_ms += request.max_wait_ms
        elif isinstance(request, AddVoterRequest):
            timeout_ms += request.timeout_ms
        body = protocol.encode(request, version, self._config)
        future = connection.send_raw(key, version, body, timeout_ms)

        def answered(done: asyncio.Future[memoryview]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            if self._closed:
                return
            if error is None:
                try:
                    response = protocol.decode(request, version, done.result())
                except DecodeError as bad:
                    self._malformed(peer_id, str(bad))
                except protocol.Refused as refusal:
                    self._refused(peer_id, refusal)
                else:
                    self._known = True
                    self._peers[peer_id].refusal = self._peers[peer_id].nonsense = None
                    self._tell(ResponseReceived(peer_id, request, response))
                    return
            elif isinstance(error, RequestTimedOut):
                connection.close()
            elif not isinstance(error, NetworkError):
                raise error
            self._tell(RequestFailed(peer_id, request))

        future.add_done_callback(answered)

    def _malformed(self, peer_id: int, reason: str) -> None:
        peer = self._peers[peer_id]
        if peer.nonsense != reason:
            peer.nonsense = reason
            logger.warning("raft_response_malformed", peer=peer_id, reason=reason)

    def _refused(self, peer_id: int, refusal: protocol.Refused) -> None:
        reason = str(refusal)
        peer = self._peers[peer_id]
        if peer.refusal != reason:
            peer.refusal = reason
            logger.warning("raft_request_refused", peer=peer_id, reason=reason)
        if isinstance(refusal, protocol.OtherCluster) and not self._known:
            self._strangers[peer_id] = None
            self._of_other_cluster(sorted(self._strangers))

    async def probe(self, voter: Voter) -> tuple[tuple[int, int] | None, bool]:
        """The range of kraft.version that the node at the voter's endpoint supports, None if none
        answers there; and whether it serves what is asked of a voter."""
        host, port = voter.endpoints[self._config.listener_name]
        try:
            connection = await Connection.connect(
                self._env,
                host,
                port,
                client_id=f"raft-client-{self._config.node_id}",
                timeout_ms=CONNECT_TIMEOUT_MS,
            )
        except ConnectFailed as error:
            logger.info("voter_not_reached", voter=voter.key.node_id, reason=str(error))
            return None, False
        levels = connection.features.get(KRAFT_VERSION, (0, 0))
        serves_quorum = all(connection.offers(key) is not None for key in _ASKED_OF_VOTERS)
        connection.close()
        return levels, serves_quorum

    def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            if peer.connecting is not None:
                peer.connecting.cancel()
            if peer.connection is not None:
                peer.connection.close()
        self._peers.clear()
