"""The registry of APIs that the core decides; what a listener advertises is made from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from controller import (
    api_allocate_producer_ids,
    api_alter_configs,
    api_alter_partition,
    api_assign_replicas_to_dirs,
    api_broker_heartbeat,
    api_broker_registration,
    api_controller_registration,
    api_create_partitions,
    api_create_topics,
    api_delete_topics,
    api_elect_leaders,
    api_incremental_alter_configs,
    api_unregister_broker,
    api_update_features,
)
from controller.api import ControllerApi

__all__ = ["APIS", "ControllerApi"]

APIS: Mapping[int, ControllerApi] = MappingProxyType(
    {
        module.API.key: module.API
        for module in (
            api_allocate_producer_ids,
            api_alter_configs,
            api_alter_partition,
            api_assign_replicas_to_dirs,
            api_broker_heartbeat,
            api_broker_registration,
            api_controller_registration,
            api_create_partitions,
            api_create_topics,
            api_delete_topics,
            api_elect_leaders,
            api_incremental_alter_configs,
            api_unregister_broker,
            api_update_features,
        )
    }
)
