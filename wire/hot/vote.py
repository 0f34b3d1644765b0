"""Vote, versions 0 to 2, for the one partition that KRaft has (KIP-595, 853, 996)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from wire.hot import primitives as p
from wire.hot.primitives import NodeEndpoint
from wire.uuids import ZERO

# One topic, `__cluster_metadata`, with one partition.
_TOPIC = b"\x02" + p.string("__cluster_metadata", True) + b"\x02"
_CANDIDATE = struct.Struct(">iii")
_LAST = struct.Struct(">iq")
_RESULT = struct.Struct(">ihii?")
_PORT = struct.Struct(">H")


class VoteQuestion(NamedTuple):
    """What a candidate, or a prospective one with `pre_vote`, asks of a voter."""

    replica_epoch: int
    replica_id: int
    last_offset_epoch: int
    last_offset: int
    cluster_id: str | None = None
    voter_id: int = -1
    replica_directory_id: UUID = ZERO
    voter_directory_id: UUID = ZERO
    pre_vote: bool = False


class VoteAnswer(NamedTuple):
    """A voter's answer; leader id -1 where it knows no leader."""

    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool


def encode_vote_request(version: int, question: VoteQuestion) -> bytes:
    """The body, without size and header. Version 2 has the pre-vote, 1 the directory ids."""
    assert version >= 2 or not question.pre_vote, "no pre-vote before version 2"
    out = [p.string(question.cluster_id, True)]
    if version >= 1:
        out.append(p.INT32.pack(question.voter_id))
    out.append(_TOPIC)
    out.append(_CANDIDATE.pack(0, question.replica_epoch, question.replica_id))
    if version >= 1:
        out.append(question.replica_directory_id.bytes + question.voter_directory_id.bytes)
    out.append(_LAST.pack(question.last_offset_epoch, question.last_offset))
    if version >= 2:
        out.append(b"\x01" if question.pre_vote else b"\x00")
    out.append(b"\x00\x00\x00")
    return b"".join(out)


def encode_vote_response(
    version: int, answer: VoteAnswer, *, node_endpoints: Sequence[NodeEndpoint] = ()
) -> bytes:
    """The body, without size and header, of an answer without a top-level error."""
    out = [b"\x00\x00", _TOPIC]
    out.append(
        _RESULT.pack(
            0, answer.error_code, answer.leader_id, answer.leader_epoch, answer.vote_granted
        )
    )
    out.append(b"\x00\x00")
    if version >= 1 and node_endpoints:
        nodes = [p.count(len(node_endpoints), True)]
        for node in node_endpoints:
            nodes.append(p.INT32.pack(node.node_id) + p.string(node.host, True))
            nodes.append(_PORT.pack(node.port) + b"\x00")
        out.append(b"\x01" + p.tag(0, b"".join(nodes)))
    else:
        out.append(b"\x00")
    return b"".join(out)
