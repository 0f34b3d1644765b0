"""CreatePartitions 0-3: more partitions for a topic; `count` is the new total (KIP-195)."""

from __future__ import annotations

from typing import Any

from controller.api import ControllerApi, answer, duplicates, part
from controller.assignment import automatic, new_partition_record, replicas_of_manual
from controller.context import Context, Result
from controller.events import ApiRequest
from metadata.image import TopicImage
from metadata.records import Record
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError


def _handle(context: Context, request: ApiRequest) -> Result:
    entity = request.entity
    repeated = duplicates(str(t.name) for t in entity.topics)
    records: list[Record] = []
    results: dict[str, Any] = {}
    for topic in entity.topics:
        name = str(topic.name)
        if name in results:
            continue
        try:
            if name in repeated:
                raise KafkaError(
                    ErrorCode.invalid_request, f"Topic {name!r} is named more than once"
                )
            room = context.config.max_records_per_batch - len(records)
            records += _added(context, topic, room)
        except KafkaError as error:
            results[name] = _result(request, name, error.code, error.message)
        else:
            results[name] = _result(request, name, ErrorCode.none, None)
    reply = answer(request, results=tuple(results.values()))
    return Result([] if entity.validate_only else records, reply)


def _added(context: Context, asked: Any, room: int) -> list[Record]:
    name = str(asked.name)
    topic = context.image.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"There is no topic named {name!r}")
    present = len(topic.partitions)
    wanted = int(asked.count)
    if wanted <= present:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"Topic {name!r} has {present} partitions, a count of {wanted} adds none: "
            f"it must be at least {present + 1}",
        )
    if wanted - present > room:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"{wanted - present} more partitions for {name!r} are too many for one request: at "
            f"most {context.config.max_records_per_batch} can be added at once",
        )
    replicas = _replicas(context, topic, asked, wanted - present)
    return [
        new_partition_record(context, topic.id, index, chosen)
        for index, chosen in enumerate(replicas, present)
    ]


def _replicas(
    context: Context, topic: TopicImage, asked: Any, additional: int
) -> list[tuple[int, ...]]:
    first = topic.partitions[min(topic.partitions)]
    factor = len(first.replicas)
    if asked.assignments is None:
        return automatic(context, additional, factor)
    if len(asked.assignments) != additional:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"{additional} partitions are to be added, {len(asked.assignments)} assignments are "
            "given: one for each is needed",
        )
    return [
        replicas_of_manual(context, assignment.broker_ids, index, factor)
        for index, assignment in enumerate(asked.assignments, len(topic.partitions))
    ]


def _result(request: ApiRequest, name: str, code: ErrorCode, message: str | None) -> Any:
    return part(
        request, "CreatePartitionsTopicResult", name=name, error_code=code, error_message=message
    )


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    names = dict.fromkeys(str(t.name) for t in request.entity.topics)
    return answer(request, results=tuple(_result(request, name, code, message) for name in names))


API = ControllerApi(ApiKey.CREATE_PARTITIONS, 0, 3, _handle, _refuse)
