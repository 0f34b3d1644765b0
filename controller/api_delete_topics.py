"""DeleteTopics 1-6: by name, from version 6 on also by id (KIP-516)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from controller.api import ControllerApi, answer, duplicates, part
from controller.context import Context, Result
from controller.events import ApiRequest
from metadata.image import MetadataImage, TopicImage
from metadata.records import Record, RemoveTopicRecord
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.uuids import to_text

_BY_ID_VERSION = 6
_DISABLED_VERSION = 3  # TOPIC_DELETION_DISABLED is told from here on
_Asked = tuple[str | None, UUID | None]


def _asked_for(request: ApiRequest) -> list[_Asked]:
    if request.api_version >= _BY_ID_VERSION:
        return [
            (None if t.name is None else str(t.name), t.topic_id) for t in request.entity.topics
        ]
    return [(str(name), None) for name in request.entity.topic_names]


def _handle(context: Context, request: ApiRequest) -> Result:
    if not context.config.delete_topic_enable:
        code = (
            ErrorCode.invalid_request
            if request.api_version < _DISABLED_VERSION
            else ErrorCode.topic_deletion_disabled
        )
        raise KafkaError(code, "Topic deletion is disabled: delete.topic.enable is false")
    asked = _asked_for(request)
    repeated = _repeated(context.image, asked)
    records: list[Record] = []
    results: list[Any] = []
    for name, topic_id in asked:
        try:
            topic = _find(context.image, name, topic_id)
            if topic.id in repeated:
                raise KafkaError(
                    ErrorCode.invalid_request, f"Topic {topic.name!r} is named more than once"
                )
        except KafkaError as error:
            results.append(_result(request, name, topic_id, error.code, error.message))
            continue
        records.append(RemoveTopicRecord(topic_id=topic.id))
        results.append(_result(request, topic.name, topic.id, ErrorCode.none, None))
    return Result(records, answer(request, responses=tuple(results)))


def _repeated(image: MetadataImage, asked: list[_Asked]) -> list[UUID]:
    ids: list[str] = []
    for name, topic_id in asked:
        found = image.topic(name) if name is not None else None
        if found is not None:
            ids.append(str(found.id))
        elif topic_id is not None:
            ids.append(str(topic_id))
    return [UUID(text) for text in duplicates(ids)]


def _find(image: MetadataImage, name: str | None, topic_id: UUID | None) -> TopicImage:
    if (name is None) == (topic_id is None):
        what = "neither name nor id" if name is None else f"both the name {name!r} and an id"
        raise KafkaError(
            ErrorCode.invalid_request, f"A topic to delete has {what}: give exactly one"
        )
    if topic_id is not None:
        found = image.topics_by_id.get(topic_id)
        if found is None:
            raise KafkaError(
                ErrorCode.unknown_topic_id, f"There is no topic with id {to_text(topic_id)}"
            )
        return found
    assert name is not None
    by_name = image.topic(name)
    if by_name is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"There is no topic named {name!r}")
    return by_name


def _result(
    request: ApiRequest,
    name: str | None,
    topic_id: UUID | None,
    code: ErrorCode,
    message: str | None,
) -> Any:
    # Before version 6 a name is never null.
    shown = name if request.api_version >= _BY_ID_VERSION else name or ""
    return part(
        request,
        "DeletableTopicResult",
        name=shown,
        topic_id=topic_id,
        error_code=code,
        error_message=message,
    )


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(
        request,
        responses=tuple(
            _result(request, name, topic_id, code, message)
            for name, topic_id in _asked_for(request)
        ),
    )


API = ControllerApi(ApiKey.DELETE_TOPICS, 1, 6, _handle, _refuse)
