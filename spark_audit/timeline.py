"""`audit timeline`: what happened in a cluster, as rows of events, in Spark SQL.

Leader and ISR histories are windows over narrow columns; all other events follow from one
record each. Where the log's beginning was trimmed, the snapshot it continues from says what was
before, and is itself no event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_audit.files import LogDirectory, open_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT_COLUMNS = (
    "offset", "epoch", "timestamp", "event", "topic", "partition", "broker_id", "name", "before",
    "after",
)  # fmt: skip

_READ = """offset bigint, epoch int, timestamp bigint, record_type string, source string,
 topic_id string, topic string, partition int, leader int, isr array<int>, replicas array<int>,
 broker_id int, broker_epoch bigint, fenced boolean, in_controlled_shutdown boolean,
 controller_id int, resource_type int, resource_name string, config_name string,
 config_value string, feature_name string, feature_level int"""

# `place` orders rows: a snapshot stands before all of the log, or where the log resumes from it.
_PLACED = """
SELECT *, CASE WHEN source LIKE '%.checkpoint' THEN {base} - 0.5D ELSE CAST(offset AS DOUBLE) END
       AS place, source LIKE '%.checkpoint' AS from_snapshot
FROM {rows}
"""

_NAMES = """
SELECT topic_id, first(topic) AS topic_name FROM {rows} WHERE record_type = 'TopicRecord'
GROUP BY topic_id
"""

_PARTITIONS = """
SELECT offset, epoch, timestamp, record_type, topic_id, partition, leader, isr, from_snapshot,
       last(leader, true) OVER earlier AS old_leader, last(isr, true) OVER earlier AS old_isr
FROM {rows} WHERE record_type IN ('PartitionRecord', 'PartitionChangeRecord')
WINDOW earlier AS (PARTITION BY topic_id, partition ORDER BY place
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""

_PARTITION_EVENTS = """
SELECT offset, epoch, timestamp, found.event AS event, topic_id, partition,
       CAST(NULL AS INT) AS broker_id, CAST(NULL AS STRING) AS name,
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
                     to_json(old_isr) AS before, to_json(isr) AS after) END
  ), each -> each IS NOT NULL)) AS found
  FROM {partitions} WHERE NOT from_snapshot
)
"""

_SINGLE_EVENTS = """
SELECT offset, epoch, timestamp, found.event AS event, topic_id, CAST(NULL AS INT) AS partition,
       broker_id, found.name AS name, CAST(NULL AS STRING) AS before, found.after AS after
FROM (
  SELECT *, explode(filter(array(
    CASE record_type
      WHEN 'LeaderChangeMessage'
      THEN struct('quorum-leader' AS event, CAST(NULL AS STRING) AS name,
                  CAST(leader AS STRING) AS after)
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
SELECT e.offset, e.epoch, e.timestamp, e.event, n.topic_name AS topic, e.partition, e.broker_id,
       e.name, e.before, e.after
FROM (SELECT * FROM {partition_events} UNION ALL SELECT * FROM {single_events}) e
LEFT JOIN {names} n ON e.topic_id = n.topic_id
"""


def base_snapshot(directory: LogDirectory) -> tuple[str, int] | None:
    """The snapshot that a log without its beginning continues from: (file, end offset)."""
    first = directory.segments[0].base_offset if directory.segments else None
    if first == 0:
        return None
    for snapshot in directory.snapshots:
        if first is None or snapshot.end_offset >= first:
            return snapshot.name, snapshot.end_offset
    return None


def timeline(spark: SparkSession, path: str) -> DataFrame:
    """The events of a metadata log, ordered by offset. AuditError for a path without a log."""
    directory = open_directory(path)
    base = base_snapshot(directory)
    read = spark.read.format("kraft").schema(_READ)
    if base is None:
        read = read.option("snapshots", "false")
    rows = read.load(path).where("record_type <> 'NoOpRecord'")
    if base is not None:
        name = base[0].replace("'", "")
        rows = rows.where(f"source LIKE '%.log' OR source = '{name}'")
    end = base[1] if base is not None else 0
    placed = spark.sql(_PLACED.replace("{base}", str(end)), rows=rows).persist()
    partitions = spark.sql(_PARTITIONS, rows=placed)
    events = spark.sql(
        _ALL,
        partition_events=spark.sql(_PARTITION_EVENTS, partitions=partitions),
        single_events=spark.sql(_SINGLE_EVENTS, rows=placed),
        names=spark.sql(_NAMES, rows=placed),
    )
    return events.orderBy("offset", "topic", "partition", "event")
