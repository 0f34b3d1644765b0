"""The events of the quorum itself: its leaders, its voters (KIP-853) and kraft.version, from the
control records that it writes between the controllers' records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = ("VotersRecord", "KRaftVersionRecord")

# A voter is an id and a directory id: another directory is another voter.
_VOTERS = (
    "ARRAY<STRUCT<VoterId: INT, VoterDirectoryId: STRING,"
    " Endpoints: ARRAY<STRUCT<Name: STRING, Host: STRING, Port: INT>>>>"
)
_ROWS = f"""
SELECT offset, epoch, timestamp, place, from_snapshot, record_type,
       CASE WHEN record_type = 'LeaderChangeMessage' THEN leader END AS leader,
       CASE WHEN record_type = 'KRaftVersionRecord'
            THEN get_json_object(payload, '$.KRaftVersion') END AS level,
       CASE WHEN record_type = 'VotersRecord' THEN transform(
              from_json(get_json_object(payload, '$.Voters'), '{_VOTERS}'),
              one -> struct(one.VoterId AS id,
                            concat('directory ', one.VoterDirectoryId) AS directory,
                            array_join(transform(one.Endpoints, at ->
                              concat(at.Name, '://', at.Host, ':', at.Port)), ',') AS endpoints))
            END AS voters
FROM {{rows}} WHERE record_type IN ('LeaderChangeMessage', 'VotersRecord', 'KRaftVersionRecord')
"""

_EVENTS = """
SELECT offset, epoch, timestamp, found.event AS event, CAST(NULL AS STRING) AS topic_id,
       CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition,
       CAST(NULL AS INT) AS broker_id, found.name AS name, found.before AS before,
       found.after AS after
FROM (
  SELECT *, explode(concat(
    CASE WHEN leader IS NULL THEN array()
         ELSE array(struct('quorum-leader' AS event, CAST(NULL AS STRING) AS name,
                           CAST(old_leader AS STRING) AS before,
                           CAST(leader AS STRING) AS after)) END,
    CASE WHEN level IS NULL OR level <=> old_level THEN array()
         ELSE array(struct('feature-level' AS event, 'kraft.version' AS name,
                           old_level AS before, level AS after)) END,
    CASE WHEN voters IS NULL THEN array() ELSE concat(
      transform(
        filter(old_voters, old -> NOT exists(voters, new ->
               new.id = old.id AND new.directory = old.directory)),
        old -> struct('voter-removed' AS event, concat('voter ', old.id) AS name,
                      concat(old.directory, ', ', old.endpoints) AS before,
                      CAST(NULL AS STRING) AS after)),
      transform(
        filter(voters, new -> NOT exists(old_voters, old ->
               new.id = old.id AND new.directory = old.directory)),
        new -> struct('voter-added' AS event, concat('voter ', new.id) AS name,
                      CAST(NULL AS STRING) AS before,
                      concat(new.directory, ', ', new.endpoints) AS after)),
      flatten(transform(voters, new -> transform(
        filter(old_voters, old -> new.id = old.id AND new.directory = old.directory
                                  AND new.endpoints <> old.endpoints),
        old -> struct('voter-endpoints' AS event, concat('voter ', new.id) AS name,
                      old.endpoints AS before, new.endpoints AS after))))) END
  )) AS found
  FROM (
    SELECT *, last(leader, true) OVER earlier AS old_leader,
           last(level, true) OVER earlier AS old_level,
           coalesce(last(voters, true) OVER earlier, array()) AS old_voters
    FROM {rows}
    WINDOW earlier AS (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  )
  WHERE NOT from_snapshot
)
"""


def events(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """The quorum's events in `rows`, which have `place`, `from_snapshot`, `payload`."""
    return spark.sql(_EVENTS, rows=spark.sql(_ROWS, rows=rows))
