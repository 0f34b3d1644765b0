"""CreatePartitions 0-3: more partitions for a topic; `count` is the new total (KIP-195)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from controller.api import ControllerApi, answer, duplicates, part
from controller.assignment import automatic, new_partition_record, replicas_of_manual
from controller.context import AtomicOperation, Context, Making
from controller.events import ApiRequest
from metadata.image import TopicImage
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.reader import MAX_NAMED


def _handle(context: Context, request: ApiRequest) -> AtomicOperation:
    return AtomicOperation(
        lambda: _make(context, request), validate_only=request.entity.validate_only
    )


def _make(context: Context, request: ApiRequest) -> Making:
    entity = request.entity
    repeated = duplicates(str(t.name) for t in entity.topics)
    room = context.config.max_records_per_batch
    results: dict[str, Any] = {}
    for topic in entity.topics:
        name = str(topic.name)
        if name in results:
            continue
        yield None
        try:
            if name in repeated:
                raise KafkaError(
                    ErrorCode.invalid_request, f"Topic {name!r} is named more than once"
                )
            found, replicas = yield from _additional(context, topic, room)
        except KafkaError as error:
            results[name] = _result(request, name, error.code, error.message)
            continue
        present = len(found.partitions)
        for index, chosen in enumerate(replicas, present):
            yield new_partition_record(context, found.id, index, chosen)
        room -= int(topic.count) - present
        results[name] = _result(request, name, ErrorCode.none, None)
    return answer(request, results=tuple(results.values()))


def _additional(
    context: Context, asked: Any, room: int
) -> Generator[None, None, tuple[TopicImage, Iterable[tuple[int, ...]]]]:
    """The topic as it is, and the replicas of the partitions to add; `room` is how many more
    records the batch can take."""
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
    return topic, (yield from _replicas(context, topic, asked, wanted - present))


def _replicas(
    context: Context, topic: TopicImage, asked: Any, additional: int
) -> Generator[None, None, Iterable[tuple[int, ...]]]:
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
    chosen: list[tuple[int, ...]] = []
    for index, assignment in enumerate(asked.assignments, len(topic.partitions)):
        yield
        chosen.append(replicas_of_manual(context, assignment.broker_ids, index, factor))
    return chosen


def _result(request: ApiRequest, name: str, code: ErrorCode, message: str | None) -> Any:
    return part(
        request, "CreatePartitionsTopicResult", name=name, error_code=code, error_message=message
    )


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    names = dict.fromkeys(str(t.name) for t in request.entity.topics)
    return answer(request, results=tuple(_result(request, name, code, message) for name in names))


API = ControllerApi(ApiKey.CREATE_PARTITIONS, 0, 3, _handle, _refuse, max_elements=MAX_NAMED)
