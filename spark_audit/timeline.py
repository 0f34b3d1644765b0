"""`audit timeline`: what happened in a cluster, as rows of events, in Spark SQL.

Histories of partitions are windows over narrow columns, as these are most of a log; the settings
of `spark_audit.settings` and the quorum's own records are few, and read from payloads. Where the
log's beginning was trimmed, the snapshot it continues from says what was before, and is itself no
event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from spark_audit import quorum_events, settings
from spark_audit.coverage import Coverage, Skipped, coverage
from spark_audit.files import LogDirectory, open_directory
from spark_audit.live import gone_from, settled
from spark_audit.session import on_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Taken = TypeVar("Taken")

EVENT_COLUMNS = (
    "offset", "epoch", "timestamp", "event", "topic", "partition", "broker_id", "name", "before",
    "after",
)  # fmt: skip

_READ = """offset bigint, epoch int, timestamp bigint, record_type string, source string,
 position bigint, topic_id string, topic string, partition int, leader int, isr array<int>,
 replicas array<int>, removing array<int>, adding array<int>, elr array<int>, broker_id int,
 broker_epoch bigint, fenced boolean, in_controlled_shutdown boolean,
 controller_id int, resource_type int, resource_name string, config_name string,
 config_value string, feature_name string, feature_level int, payload string"""

# `place` orders rows: a snapshot stands before all of the log, or where the log resumes from it.
_PLACED = """
SELECT *, CASE WHEN source LIKE '%.checkpoint' THEN {base} - 0.5D ELSE CAST(offset AS DOUBLE) END
       AS place, source LIKE '%.checkpoint' AS from_snapshot
FROM {rows}
"""

# A batch that stands at an offset which isn't its own, or that stands there twice.
_PARTS = """
SELECT * FROM {rows} r LEFT ANTI JOIN {skipped} s
ON r.source = s.file AND r.position >= s.begin AND (s.end IS NULL OR r.position < s.end)
   AND (s.below IS NULL OR r.offset < s.below)
"""

_NAMES = """
SELECT topic_id, first(topic) AS topic_name FROM {rows} WHERE record_type = 'TopicRecord'
GROUP BY topic_id
"""

_PARTITIONS = """
SELECT offset, epoch, timestamp, record_type, topic_id, partition, leader, isr, from_snapshot,
       replicas, elr, last(leader, true) OVER earlier AS old_leader,
       last(isr, true) OVER earlier AS old_isr, last(replicas, true) OVER earlier AS old_replicas,
       coalesce(last(elr, true) OVER earlier, array()) AS old_elr,
       coalesce(adding, last(adding, true) OVER earlier, array()) AS adding,
       coalesce(last(adding, true) OVER earlier, array()) AS old_adding,
       coalesce(removing, last(removing, true) OVER earlier, array()) AS removing,
       coalesce(last(removing, true) OVER earlier, array()) AS old_removing
FROM {rows} WHERE record_type IN ('PartitionRecord', 'PartitionChangeRecord')
WINDOW earlier AS (PARTITION BY topic_id, partition ORDER BY place
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""

_PARTITION_EVENTS = """
SELECT offset, epoch, timestamp, found.event AS event, topic_id, CAST(NULL AS STRING) AS topic,
       partition, CAST(NULL AS INT) AS broker_id, CAST(NULL AS STRING) AS name,
       found.before AS before, found.after AS after
FROM (
  SELECT *, explode(filter(array(
    CASE WHEN record_type = 'PartitionRecord'
         THEN struct('partition-created' AS event, CAST(NULL AS STRING) AS before,
                     concat('leader ', leader, ', ISR ', to_json(isr)) AS after) END,
    CASE WHEN record_type = 'PartitionChangeRecord' AND leader <> old_leader
         THEN struct('leader-change' AS event, CAST(old_leader AS STRING) AS before,
                     CAST(leader AS STRING) AS after)
         WHEN record_type = 'PartitionChangeRecord' AND leader = old_leader
         THEN struct('leader-epoch-bump' AS event, CAST(old_leader AS STRING) AS before,
                     CAST(leader AS STRING) AS after) END,
    CASE WHEN record_type = 'PartitionChangeRecord'
              AND array_sort(isr) <> array_sort(old_isr)
         THEN struct(CASE WHEN size(array_except(isr, old_isr)) = 0 THEN 'isr-shrink'
                          WHEN size(array_except(old_isr, isr)) = 0 THEN 'isr-expand'
                          ELSE 'isr-change' END AS event,
                     to_json(old_isr) AS before, to_json(isr) AS after) END,
    CASE WHEN record_type = 'PartitionChangeRecord' AND array_sort(elr) <> array_sort(old_elr)
         THEN struct('elr-change' AS event, to_json(old_elr) AS before, to_json(elr) AS after) END,
    CASE WHEN record_type = 'PartitionChangeRecord'
              AND (adding <> old_adding OR removing <> old_removing)
         THEN CASE WHEN size(adding) + size(removing) = 0
              THEN struct('reassignment-ended' AS event, to_json(old_replicas) AS before,
                          to_json(coalesce(replicas, old_replicas)) AS after)
              ELSE struct(CASE WHEN size(old_adding) + size(old_removing) = 0
                               THEN 'reassignment-started' ELSE 'reassignment-changed' END
                            AS event,
                          to_json(old_replicas) AS before,
                          concat('adding ', to_json(adding), ', removing ', to_json(removing))
                            AS after) END END
  ), each -> each IS NOT NULL)) AS found
  FROM {partitions} WHERE NOT from_snapshot
)
"""

_SINGLE_EVENTS = """
SELECT offset, epoch, timestamp, found.event AS event, topic_id,
       CASE WHEN record_type = 'ConfigRecord' AND resource_type = 2 THEN resource_name END AS topic,
       CAST(NULL AS INT) AS partition, broker_id, found.name AS name,
       CAST(NULL AS STRING) AS before, found.after AS after
FROM (
  SELECT *, explode(filter(array(
    CASE record_type
      WHEN 'TopicRecord' THEN struct('topic-created' AS event, topic AS name, topic_id AS after)
      WHEN 'RemoveTopicRecord'
      THEN struct('topic-deleted' AS event, CAST(NULL AS STRING) AS name, topic_id AS after)
      WHEN 'RegisterBrokerRecord'
      THEN struct('broker-registered' AS event, CAST(NULL AS STRING) AS name,
                  concat('epoch ', broker_epoch) AS after)
      WHEN 'UnregisterBrokerRecord'
      THEN struct('broker-unregistered' AS event, CAST(NULL AS STRING) AS name,
                  CAST(NULL AS STRING) AS after)
      WHEN 'RegisterControllerRecord'
      THEN struct('controller-registered' AS event, concat('controller ', controller_id) AS name,
                  CAST(NULL AS STRING) AS after)
      WHEN 'ConfigRecord'
      THEN struct(CASE WHEN config_value IS NULL THEN 'config-removed' ELSE 'config-set' END
                    AS event,
                  concat(resource_type, ':', resource_name, ' ', config_name) AS name,
                  config_value AS after)
      WHEN 'FeatureLevelRecord'
      THEN struct('feature-level' AS event, feature_name AS name,
                  CAST(feature_level AS STRING) AS after)
    END,
    CASE WHEN record_type <> 'RegisterBrokerRecord' AND fenced IS NOT NULL
         THEN struct(CASE WHEN fenced THEN 'broker-fenced' ELSE 'broker-unfenced' END AS event,
                     CAST(NULL AS STRING) AS name, CAST(NULL AS STRING) AS after) END,
    CASE WHEN record_type <> 'RegisterBrokerRecord' AND in_controlled_shutdown
         THEN struct('broker-shutting-down' AS event, CAST(NULL AS STRING) AS name,
                     CAST(NULL AS STRING) AS after) END
  ), each -> each IS NOT NULL)) AS found
  FROM {rows} WHERE NOT from_snapshot
)
"""

_ALL = """
SELECT e.offset, e.epoch, e.timestamp, e.event, coalesce(e.topic, n.topic_name) AS topic,
       e.partition, e.broker_id, e.name, e.before, e.after
FROM (SELECT * FROM {partition_events} UNION ALL SELECT * FROM {single_events}
      UNION ALL SELECT * FROM {setting_events} UNION ALL SELECT * FROM {quorum_events}) e
LEFT JOIN {names} n ON e.topic_id = n.topic_id
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events to give: of these topics (none named: all), and in a stretch of time, in
    milliseconds since 1970, both ends included."""

    topics: Sequence[str] = ()
    since: int | None = None
    until: int | None = None

    def of(self, events: DataFrame) -> DataFrame:
        if self.topics:
            events = events.where(events.topic.isin(list(self.topics)))
        if self.since is not None:
            events = events.where(events.timestamp >= self.since)
        if self.until is not None:
            events = events.where(events.timestamp <= self.until)
        return events


def timeline(
    spark: SparkSession, path: str, found: Coverage | None = None, wanted: Wanted | None = None
) -> DataFrame:
    """The events of a metadata log, ordered by offset. AuditError for a path without a log.

    `found` is what `coverage` says of the log, where the caller has asked already.
    """
    if found is None:
        found = coverage(open_directory(path), on_spark(spark))
    base = found.base
    payloads = ",".join([*settings.RECORDS, *quorum_events.RECORDS])
    read = spark.read.format("kraft").schema(_READ).option("payloads", payloads)
    read = read.option("snapshots", "false" if base is None else base.name)
    rows = read.load(path).where("record_type <> 'NoOpRecord'")
    if found.skipped:
        rows = spark.sql(_PARTS, rows=rows, skipped=_skipped(spark, found.skipped))
    end = base.end_offset if base is not None else 0
    placed = spark.sql(_PLACED.replace("{base}", str(end)), rows=rows).persist()
    partitions = spark.sql(_PARTITIONS, rows=placed)
    events = spark.sql(
        _ALL,
        partition_events=spark.sql(_PARTITION_EVENTS, partitions=partitions),
        single_events=spark.sql(_SINGLE_EVENTS, rows=placed),
        setting_events=settings.events(spark, placed),
        quorum_events=quorum_events.events(spark, placed),
        names=spark.sql(_NAMES, rows=placed),
    )
    return (wanted or Wanted()).of(events).orderBy("offset", "topic", "partition", "event", "name")


def take_timeline(
    spark: SparkSession,
    path: str,
    wanted: Wanted,
    take: Callable[[DataFrame], Taken],
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Coverage, Taken]:
    """What there is of a log's history, and what `take`, which must read all events, makes of them;
    of a running node's log, too."""

    def read(directory: LogDirectory) -> tuple[Coverage, Taken]:
        progress(f"{path}: looking for what is missing")
        found = coverage(directory, on_spark(spark))
        progress(f"{path}: reading events")
        taken = take(timeline(spark, path, found, wanted))
        # The source lists for itself: a segment that went before it did is in no event.
        gone = gone_from(directory, directory.segments)
        if gone is not None:
            raise FileNotFoundError(gone)
        return found, taken

    return settled(path, read, progress)


def rows_of(events: DataFrame) -> list[dict[str, Any]]:
    """The events as they are in the document."""
    rows: list[dict[str, Any]] = events.toArrow().to_pylist()
    return rows


def held(events: DataFrame) -> DataFrame:
    """The events read to their end and kept by Spark, however many: what can be written later."""
    kept = events.persist()
    kept.count()
    return kept


def _skipped(spark: SparkSession, skipped: list[Skipped]) -> DataFrame:
    schema = "file string, begin bigint, end bigint, below bigint"
    return spark.createDataFrame([astuple(one) for one in skipped], schema)
