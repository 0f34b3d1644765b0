"""Hand-written codecs of the frequent messages, without an object or a copy per record batch.

kio's classes are the oracle that the tests hold these against, for every version.
"""

from wire.hot.alter_configs import (
    ConfigChange,
    ConfigsRequest,
    ConfigsResponse,
    ResourceChange,
    ResourceOutcome,
    decode_incremental_alter_configs,
)
from wire.hot.fetch_request import (
    FetchForgotten,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_request,
    encode_fetch_request,
)
from wire.hot.fetch_response import (
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_response,
)
from wire.hot.primitives import NodeEndpoint
from wire.hot.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequestView,
    encode_produce_response,
    walk_produce,
)
from wire.hot.vote import (
    VoteAnswer,
    VoteQuestion,
    encode_vote_request,
    encode_vote_response,
)

__all__ = [
    "ConfigChange",
    "ConfigsRequest",
    "ConfigsResponse",
    "FetchForgotten",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchedPartition",
    "FetchedTopic",
    "NodeEndpoint",
    "ProduceRequestView",
    "ProducedPartition",
    "ProducedTopic",
    "ResourceChange",
    "ResourceOutcome",
    "VoteAnswer",
    "VoteQuestion",
    "decode_fetch_request",
    "decode_fetch_response",
    "decode_incremental_alter_configs",
    "encode_fetch_request",
    "encode_fetch_response",
    "encode_produce_response",
    "encode_vote_request",
    "encode_vote_response",
    "walk_produce",
]
