"""The events of settings that hold until they are set anew or removed: ACLs, quotas, SCRAM
credentials, delegation tokens, the ZooKeeper migration.

Each is a key with a text for its value, so that what was before is one window for all of them.
Secrets are never part of the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = (
    "AccessControlEntryRecord", "RemoveAccessControlEntryRecord", "ClientQuotaRecord",
    "UserScramCredentialRecord", "RemoveUserScramCredentialRecord", "DelegationTokenRecord",
    "RemoveDelegationTokenRecord", "ZkMigrationStateRecord", "ClearElrRecord",
)  # fmt: skip

# Kafka's numbers, in the words of its command-line tools.
CONFIG_RESOURCES = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
ACL_RESOURCES = {
    1: "any", 2: "topic", 3: "group", 4: "cluster", 5: "transactional-id", 6: "delegation-token",
    7: "user",
}  # fmt: skip
ACL_OPERATIONS = {
    1: "any", 2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter",
    8: "describe", 9: "cluster-action", 10: "describe-configs", 11: "alter-configs",
    12: "idempotent-write", 13: "create-tokens", 14: "describe-tokens", 15: "two-phase-commit",
}  # fmt: skip
ACL_PATTERNS = {1: "any", 2: "match", 3: "literal", 4: "prefixed"}
ACL_PERMISSIONS = {1: "any", 2: "deny", 3: "allow"}
SCRAM_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MIGRATION_STATES = {0: "none", 1: "pre-migration", 2: "migration", 3: "post-migration"}


def _field(name: str) -> str:
    return f"get_json_object(payload, '$.{name}')"


def _named(names: dict[int, str], field: str) -> str:
    """SQL for a number's name; the number itself where it is newer than we are."""
    pairs = ", ".join(f"'{number}', '{name}'" for number, name in names.items())
    return f"coalesce(try_element_at(map({pairs}), {_field(field)}), {_field(field)})"


_RESOURCE = _named(ACL_RESOURCES, "ResourceType")
_LITERAL_TOPIC = (
    f"{_field('ResourceType')} = '2' AND {_field('PatternType')} = '3'"
    f" AND {_field('ResourceName')} <> '*'"
)
_ACL = f"""concat({_named(ACL_PERMISSIONS, "PermissionType")}, ' ',
 {_named(ACL_OPERATIONS, "Operation")}, ' on ', {_RESOURCE}, ' ', {_field("ResourceName")},
 CASE WHEN {_field("PatternType")} = '3' THEN ''
      ELSE concat(' (', {_named(ACL_PATTERNS, "PatternType")}, ')') END,
 ' from host ', {_field("Host")})"""
_ENTITY = f"""array_join(array_sort(transform(
 from_json({_field("Entity")}, 'ARRAY<STRUCT<EntityType: STRING, EntityName: STRING>>'),
 one -> concat(one.EntityType, ':', coalesce(one.EntityName, '(default)')))), ',')"""
_SCRAM = f"concat({_field('Name')}, ' ', {_named(SCRAM_MECHANISMS, 'Mechanism')})"

# A row for each record: the key that it sets, what that is called, its value (null: removed).
_SET = f"""
SELECT *, found.kind AS kind, found.key AS key, found.topic AS set_topic, found.name AS name,
       found.value AS value
FROM (
  SELECT offset, epoch, timestamp, place, from_snapshot, CASE record_type
    WHEN 'AccessControlEntryRecord'
    THEN struct('acl' AS kind, {_field("Id")} AS key,
                CASE WHEN {_LITERAL_TOPIC} THEN {_field("ResourceName")} END AS topic,
                {_field("Principal")} AS name, {_ACL} AS value)
    WHEN 'RemoveAccessControlEntryRecord'
    THEN struct('acl' AS kind, {_field("Id")} AS key, CAST(NULL AS STRING) AS topic,
                CAST(NULL AS STRING) AS name, CAST(NULL AS STRING) AS value)
    WHEN 'ClientQuotaRecord'
    THEN struct('quota' AS kind, concat({_ENTITY}, ' ', {_field("Key")}) AS key,
                CAST(NULL AS STRING) AS topic, concat({_ENTITY}, ' ', {_field("Key")}) AS name,
                CASE WHEN {_field("Remove")} = 'true' THEN NULL ELSE {_field("Value")} END AS value)
    WHEN 'UserScramCredentialRecord'
    THEN struct('scram' AS kind, {_SCRAM} AS key, CAST(NULL AS STRING) AS topic, {_SCRAM} AS name,
                concat({_field("Iterations")}, ' iterations') AS value)
    WHEN 'RemoveUserScramCredentialRecord'
    THEN struct('scram' AS kind, {_SCRAM} AS key, CAST(NULL AS STRING) AS topic, {_SCRAM} AS name,
                CAST(NULL AS STRING) AS value)
    WHEN 'DelegationTokenRecord'
    THEN struct('token' AS kind, {_field("TokenId")} AS key, CAST(NULL AS STRING) AS topic,
                {_field("TokenId")} AS name,
                concat('owner ', {_field("Owner")}, ', expires ',
                       {_field("ExpirationTimestamp")}) AS value)
    WHEN 'RemoveDelegationTokenRecord'
    THEN struct('token' AS kind, {_field("TokenId")} AS key, CAST(NULL AS STRING) AS topic,
                {_field("TokenId")} AS name, CAST(NULL AS STRING) AS value)
    WHEN 'ZkMigrationStateRecord'
    THEN struct('zk-migration' AS kind, '' AS key, CAST(NULL AS STRING) AS topic,
                CAST(NULL AS STRING) AS name,
                {_named(MIGRATION_STATES, "ZkMigrationState")} AS value)
    WHEN 'ClearElrRecord'
    THEN struct('elr-cleared' AS kind, '' AS key, nullif({_field("TopicName")}, '') AS topic,
                CAST(NULL AS STRING) AS name, CAST(NULL AS STRING) AS value)
    END AS found
  FROM {{rows}} WHERE payload IS NOT NULL
) WHERE found IS NOT NULL
"""

_EVENTS = """
SELECT offset, epoch, timestamp,
       CASE WHEN kind IN ('zk-migration', 'elr-cleared') THEN kind
            WHEN value IS NULL THEN concat(kind, '-removed')
            WHEN kind = 'acl' THEN 'acl-added'
            ELSE concat(kind, '-set') END AS event,
       CAST(NULL AS STRING) AS topic_id, coalesce(set_topic, old_topic) AS topic,
       CAST(NULL AS INT) AS partition, CAST(NULL AS INT) AS broker_id,
       coalesce(name, old_name, nullif(key, '')) AS name, before, value AS after
FROM (
  SELECT *, last(value) OVER earlier AS before, last(name, true) OVER earlier AS old_name,
         CASE WHEN kind = 'acl' THEN last(set_topic, true) OVER earlier END AS old_topic
  FROM {set}
  WINDOW earlier AS (PARTITION BY kind, key ORDER BY place
                     ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) WHERE NOT from_snapshot AND NOT (kind = 'zk-migration' AND value = coalesce(before, 'none'))
"""


def events(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """The events of the settings in `rows`, which have `place`, `from_snapshot`, `payload`."""
    return spark.sql(_EVENTS, set=spark.sql(_SET, rows=rows))
