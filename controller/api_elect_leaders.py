"""ElectLeaders 0-2 (KIP-183, KIP-460): preferred leaders back, or any live one where all else
failed. Version 0 knows preferred elections only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controller.api import ControllerApi, answer, part
from controller.context import Context, Operation, Steps
from controller.elections import Election, Wanted
from controller.events import ApiRequest
from controller.partition_changes import decide, terms_of
from metadata.maps import in_order
from metadata.records import NO_LEADER, Record
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.reader import MAX_NAMED

_TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def _handle(context: Context, request: ApiRequest) -> Operation:
    entity = request.entity
    kind = int(getattr(entity, "election_type", 0))
    election = _TYPES.get(kind)
    if election is None:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Election type {kind} is unknown: 0 is preferred, 1 is unclean",
        )
    results: dict[str, list[Any]] = {}
    return Operation(
        _elections(context, request, election, results),
        lambda end_offset: _answer(request, ErrorCode.none, results),
    )


def _elections(
    context: Context, request: ApiRequest, election: Election, results: dict[str, list[Any]]
) -> Steps:
    """One step a partition, each with its entry in `results`."""
    everything = request.entity.topic_partitions is None
    seen: dict[tuple[str, int], None] = {}
    for asked in _asked_for(context, request.entity):
        if asked is None or asked in seen:
            yield None
            continue
        topic, index = asked
        seen[topic, index] = None
        record, code, message = _elect(context, topic, index, election)
        if not (everything and code is ErrorCode.election_not_needed):
            results.setdefault(topic, []).append(
                part(
                    request,
                    "PartitionResult",
                    partition_id=index,
                    error_code=code,
                    error_message=message,
                )
            )
        yield record


def _asked_for(context: Context, entity: Any) -> Iterator[tuple[str, int] | None]:
    """The partitions to elect leaders of, all where none are named; a None for each stretch of the
    work of putting all in order."""
    if entity.topic_partitions is None:
        for name in in_order(context.image.topics_by_name):
            topic = None if name is None else context.image.topic(name)
            if name is None or topic is None:
                yield None
                continue
            for index in sorted(topic.partitions):
                yield name, index
        return
    for topic in entity.topic_partitions:
        # Version 0's field for the indexes has another name in some schema releases.
        for index in topic.partitions:
            yield str(topic.topic), int(index)


def _elect(
    context: Context, name: str, index: int, election: Election
) -> tuple[Record | None, ErrorCode, str | None]:
    topic = context.image.topic(name)
    if topic is None:
        return None, ErrorCode.unknown_topic_or_partition, f"No such topic as {name!r}"
    partition = topic.partitions.get(index)
    if partition is None:
        last = len(topic.partitions) - 1
        message = f"No such partition as {name}-{index}: the topic has partitions 0 to {last}"
        return None, ErrorCode.unknown_topic_or_partition, message
    if election is Election.PREFERRED:
        done = partition.leader == partition.preferred_leader
    else:
        done = partition.leader != NO_LEADER
    if done:
        message = f"{name}-{index} is led by {partition.leader} already"
        return None, ErrorCode.election_not_needed, message
    record = decide(context, topic, index, Wanted(), terms_of(context, name, election))
    if record is not None:
        return record, ErrorCode.none, None
    if election is Election.PREFERRED:
        first = partition.preferred_leader
        message = f"preferred leader {first} of {name}-{index} is not active or not in the ISR"
        return None, ErrorCode.preferred_leader_not_available, message
    message = f"no replica of {name}-{index} is active (replicas {list(partition.replicas)})"
    return None, ErrorCode.eligible_leaders_not_available, message


def _answer(request: ApiRequest, code: ErrorCode, results: dict[str, list[Any]]) -> Any:
    return answer(
        request,
        error_code=code,
        replica_election_results=tuple(
            part(
                request,
                "ReplicaElectionResult",
                topic=topic,
                partition_result=tuple(partitions),
            )
            for topic, partitions in results.items()
        ),
    )


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    if request.api_version > 0:
        return _answer(request, code, {})
    # Version 0 has no field for an error of the whole: each partition gets it.
    results = {
        str(topic.topic): [
            part(
                request,
                "PartitionResult",
                partition_id=index,
                error_code=code,
                error_message=message,
            )
            for index in topic.partitions
        ]
        for topic in request.entity.topic_partitions or ()
    }
    return _answer(request, code, results)


API = ControllerApi(ApiKey.ELECT_LEADERS, 0, 2, _handle, _refuse, max_elements=MAX_NAMED)
