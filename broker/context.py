"""What the API handlers of one broker share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
    # Set once the image is of the present: before, it would tell clients of what is long gone.
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def broker_id(self) -> int:
        return self.config.node_id
