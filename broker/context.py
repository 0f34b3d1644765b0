"""What the API handlers of one broker share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.fetch_sessions import FetchSessions
from metadata.image import EMPTY, MetadataImage

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.lifecycle import BrokerLifecycle
    from broker.producer_ids import ProducerIds
    from broker.replica_manager import ReplicaManager
    from net.controller_channel import ControllerChannel
    from world.env import Env


@dataclass(slots=True)
class BrokerContext:
    """Handed to every handler. `image` is replaced whole as metadata is committed."""

    env: Env
    config: BrokerConfig
    cluster_id: str
    lifecycle: BrokerLifecycle
    replicas: ReplicaManager
    forwarding: ControllerChannel
    producer_ids: ProducerIds
    image: MetadataImage = EMPTY
    fetch_sessions: FetchSessions = field(init=False)
    # Set once the image is of the present: before, it would tell clients of what is long gone.
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        slots = self.config.max_incremental_fetch_session_cache_slots
        self.fetch_sessions = FetchSessions(slots, self.env.chance.randint)

    @property
    def broker_id(self) -> int:
        return self.config.node_id
