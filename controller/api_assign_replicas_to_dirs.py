"""AssignReplicasToDirs 0 (KIP-858): a broker tells which log directory holds which replica."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from controller.api import ControllerApi, answer, part
from controller.cluster import check_broker_epoch
from controller.context import Context, Result
from controller.elections import Wanted
from controller.events import ApiRequest
from controller.partition_changes import decide
from metadata.features import DIRECTORY_ASSIGNMENT
from metadata.image import BrokerRegistration
from metadata.records import Record
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError
from wire.uuids import UNASSIGNED_DIR, ZERO


def _handle(context: Context, request: ApiRequest) -> Result:
    entity = request.entity
    if context.metadata_version < DIRECTORY_ASSIGNMENT:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"metadata.version {context.metadata_version} has no directory assignment, it "
            f"begins with {DIRECTORY_ASSIGNMENT}",
        )
    broker = check_broker_epoch(context.image, int(entity.broker_id), entity.broker_epoch)
    draft = context.draft()
    records: list[Record] = []
    directories = tuple(
        part(
            request,
            "DirectoryData",
            id_=directory.id_,
            topics=tuple(
                _assign_topic(draft, request, broker, directory.id_ or ZERO, topic, records)
                for topic in directory.topics
            ),
        )
        for directory in entity.directories
    )
    reply = answer(request, error_code=ErrorCode.none, directories=directories)
    return Result(records, reply)


def _assign_topic(
    draft: Context,
    request: ApiRequest,
    broker: BrokerRegistration,
    directory: UUID,
    topic: Any,
    records: list[Record],
) -> Any:
    parts = tuple(
        part(
            request,
            "PartitionData",
            partition_index=p.partition_index,
            error_code=_assign(
                draft, broker, topic.topic_id or ZERO, p.partition_index, directory, records
            ),
        )
        for p in topic.partitions
    )
    return part(request, "TopicData", topic_id=topic.topic_id, partitions=parts)


def _assign(
    draft: Context,
    broker: BrokerRegistration,
    topic_id: UUID,
    index: int,
    directory: UUID,
    records: list[Record],
) -> ErrorCode:
    """Adds the record, if one is needed, and applies it to the draft's image."""
    image = draft.image
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return ErrorCode.unknown_topic_id
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.unknown_topic_or_partition
    if broker.id not in partition.replicas:
        return ErrorCode.not_leader_or_follower
    offline = not broker.has_online_dir(directory)
    before = partition.directory_of(broker.id)
    # What lay in a directory that the broker has no more was not moved: it begins anew.
    begun_anew = before not in (None, directory) and not broker.has_online_dir(before)
    wanted = Wanted(
        directories=tuple(
            directory if replica == broker.id else partition.directory_of(replica) or UNASSIGNED_DIR
            for replica in partition.replicas
        ),
        isr=tuple(b for b in partition.isr if not (offline and b == broker.id)),
        not_eligible=(broker.id,) if begun_anew else (),
    )
    record = decide(draft, topic, index, wanted)
    if record is not None:
        records.append(record)
        draft.image = image.apply(record)
    return ErrorCode.none


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(request, error_code=code, directories=())


API = ControllerApi(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, _handle, _refuse, admin=False, forwardable=False
)
