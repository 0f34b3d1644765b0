"""Topics made on first use: a CreateTopics request of our own to the controller (KIP-590)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import structlog

from broker.api_forwarded import send_enveloped
from broker.context import BrokerContext
from broker.tasks import OnFatal, spawn
from wire.apis import ApiKey, ErrorCode
from wire.errors import DecodeError, KafkaError
from wire.messages import (
    RequestHeader,
    decode_response,
    encode_body,
    fill,
    millis,
    request_header,
    request_module,
)

_VERSION = 5
_LOCALHOST = b"\x7f\x00\x00\x01"


class TopicCreation:
    """Asks for missing topics, each once at a time. Counters: `asked`, `failed`."""

    def __init__(self, context: BrokerContext, on_fatal: OnFatal) -> None:
        self._context = context
        self._on_fatal = on_fatal
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._log = structlog.get_logger("broker.auto_create").bind(node_id=context.broker_id)
        self.asked = 0
        self.failed = 0

    def ask(self, names: list[str]) -> None:
        """Begins to create the topics that nobody asked for yet; returns at once."""
        fresh = [name for name in names if name not in self._asked]
        if not fresh:
            return
        self.asked += len(fresh)
        task = spawn("auto-create", partial(self._create, fresh), self._on_fatal)
        for name in fresh:
            self._asked[name] = task

    async def close(self) -> None:
        """Ends what is under way."""
        tasks = list(dict.fromkeys(self._asked.values()))
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _create(self, names: list[str]) -> None:
        try:
            config = self._context.config
            header = RequestHeader(
                ApiKey.CREATE_TOPICS, _VERSION, 0, f"broker-{config.node_id}-auto-create"
            )
            data = request_header(header) + encode_body(self._request(names))
            response = await send_enveloped(
                self._context, data, _LOCALHOST, config.request_timeout_ms
            )
            _, entity = decode_response(ApiKey.CREATE_TOPICS, _VERSION, response)
            for topic in entity.topics:
                if topic.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                    self.failed += 1
                    self._log.warning(
                        "auto_create_failed",
                        topic=topic.name,
                        error=topic.error_code.name,
                        reason=topic.error_message,
                    )
        except (KafkaError, DecodeError) as error:
            self.failed += len(names)
            self._log.warning("auto_create_failed", topics=names, reason=str(error))
        finally:
            for name in names:
                del self._asked[name]

    def _request(self, names: list[str]) -> Any:
        module = request_module(ApiKey.CREATE_TOPICS, _VERSION)
        topics = []
        for name in names:
            partitions, replicas, configs = self._shape(name)
            topics.append(
                module.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replicas,
                    assignments=(),
                    configs=tuple(
                        module.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()
                    ),
                )
            )
        return fill(
            module.CreateTopicsRequest,
            topics=tuple(topics),
            timeout=millis(self._context.config.request_timeout_ms),
            validate_only=False,
        )

    def _shape(self, name: str) -> tuple[int, int, dict[str, str]]:
        config = self._context.config
        if name == "__consumer_offsets":
            settings = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
            return (
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                settings,
            )
        if name == "__transaction_state":
            settings = {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            }
            return (
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
                settings,
            )
        return config.num_partitions, config.default_replication_factor, {}
