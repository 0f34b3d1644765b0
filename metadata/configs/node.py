"""The configurations of a node: Kafka 4.1's names and defaults, and a few of our own.

Left out are Kafka's settings for what does not exist here; a file that names one gets a warning.
Some have no effect here but stand in nearly every Kafka file, and are accepted: their help says
so. TLS, SASL and quotas bring theirs when they come.
"""

from __future__ import annotations

from typing import Final

from metadata.configs.broker import BROKER_ROWS, LOG_ROWS, TOPIC_DEFAULT_ROWS
from metadata.configs.definition import (
    INT_MAX,
    ConfigDef,
    ConfigType,
    Row,
    Scope,
    Update,
    Value,
    at_least,
    items_of,
    one_of,
    path,
)
from metadata.configs.group import GROUP_ROWS, OFFSETS_ROWS

HOUR_MS: Final = 3_600_000
WEEK_MS: Final = 7 * 24 * HOUR_MS

T = ConfigType

_REQUIRED: Final[tuple[Row, ...]] = (
    ("node.id", T.INT, None, at_least(0), "Number of this node, unique in the cluster."),
    (
        "process.roles",
        T.LIST,
        None,
        items_of("broker", "controller"),
        "What this process is: broker, controller, or both.",
    ),
)

_PROTOCOL_MAP: Final = (
    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
    "SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
)

_NETWORK: Final[tuple[Row, ...]] = (
    (
        "listeners",
        T.STRING,
        "PLAINTEXT://localhost:9092",
        None,
        "Addresses to listen on, NAME://host:port; an empty host is every interface.",
    ),
    (
        "advertised.listeners",
        T.STRING,
        None,
        None,
        "Addresses told to clients, where they differ from listeners.",
    ),
    (
        "listener.security.protocol.map",
        T.STRING,
        _PROTOCOL_MAP,
        None,
        "Security protocol of each listener name.",
    ),
    (
        "inter.broker.listener.name",
        T.STRING,
        None,
        None,
        "Listener that brokers use among themselves; by default the PLAINTEXT one.",
    ),
    (
        "controller.listener.names",
        T.STRING,
        None,
        None,
        "Listeners of the controllers; a broker connects to the first.",
    ),
    (
        "security.inter.broker.protocol",
        T.STRING,
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "Security protocol among brokers where no listener is named.",
    ),
    ("broker.rack", T.STRING, None, None, "Rack of this broker, for placing replicas apart."),
    (
        "socket.request.max.bytes",
        T.INT,
        104_857_600,
        at_least(1),
        "Largest request; a connection that announces more is closed.",
    ),
    (
        "connections.max.idle.ms",
        T.LONG,
        600_000,
        None,
        "Time after which a silent connection is closed.",
    ),
    ("max.connections", T.INT, INT_MAX, at_least(0), "Most connections of one listener."),
    ("max.connections.per.ip", T.INT, INT_MAX, at_least(0), "Most connections of one address."),
    ("socket.listen.backlog.size", T.INT, 50, at_least(1), "Connections waiting to be accepted."),
    ("request.timeout.ms", T.INT, 30_000, at_least(1), "Time for a request to another node."),
    ("fetch.max.bytes", T.INT, 57_671_680, at_least(1024), "Most bytes of one fetch response."),
    (
        "max.incremental.fetch.session.cache.slots",
        T.INT,
        1000,
        at_least(0),
        "Incremental fetch sessions remembered.",
    ),
    (
        "replica.selector.class",
        T.STRING,
        None,
        one_of("org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        "Where consumers read: by default at the leader, with it at a replica in their rack.",
    ),
)

# Kafka takes 0 for the quorum's times, too. With it no election comes to its end before the next
# begins, or what fails is tried again at once, for ever.
_QUORUM: Final[tuple[Row, ...]] = (
    (
        "controller.quorum.voters",
        T.LIST,
        (),
        None,
        "The controllers of a static quorum: id@host:port and so on.",
    ),
    (
        "controller.quorum.bootstrap.servers",
        T.LIST,
        (),
        None,
        "Controllers to ask for the quorum, host:port, …, where voters are not given.",
    ),
    (
        "controller.quorum.auto.join.enable",
        T.BOOLEAN,
        False,
        None,
        "Whether a controller that is no voter makes itself one; one that was removed stays out.",
    ),
    (
        "controller.quorum.election.timeout.ms",
        T.INT,
        1000,
        at_least(1),
        "Least time to wait for votes; the wait is a random one up to twice as long.",
    ),
    (
        "controller.quorum.fetch.timeout.ms",
        T.INT,
        2000,
        at_least(1),
        "Time without a fetch from the leader, or from a majority, before it counts as lost.",
    ),
    (
        "controller.quorum.election.backoff.max.ms",
        T.INT,
        1000,
        at_least(1),
        "Longest pause after a lost election.",
    ),
    (
        "controller.quorum.append.linger.ms",
        T.INT,
        25,
        at_least(0),
        "Accepted from Kafka's files; appends here never wait for company.",
    ),
    (
        "controller.quorum.request.timeout.ms",
        T.INT,
        2000,
        at_least(1),
        "Time for a request between controllers.",
    ),
    (
        "controller.quorum.retry.backoff.ms",
        T.INT,
        20,
        at_least(1),
        "Pause before a request between controllers is repeated.",
    ),
    ("metadata.log.dir", T.STRING, None, path, "Directory of the metadata log; first log dir."),
    (
        "metadata.log.segment.bytes",
        T.INT,
        1_073_741_824,
        at_least(8_388_608),
        "Size at which the metadata log begins a new segment.",
    ),
    (
        "metadata.log.segment.ms",
        T.LONG,
        WEEK_MS,
        at_least(1),
        "Age at which the metadata log begins a new segment.",
    ),
    (
        "metadata.log.max.record.bytes.between.snapshots",
        T.LONG,
        20_971_520,
        at_least(1),
        "Bytes of new records after which a metadata snapshot is written.",
    ),
    (
        "metadata.log.max.snapshot.interval.ms",
        T.LONG,
        HOUR_MS,
        at_least(0),
        "Longest time between metadata snapshots; 0 for no such limit.",
    ),
    (
        "metadata.max.retention.bytes",
        T.LONG,
        104_857_600,
        at_least(-1),
        "Bytes of metadata log and snapshots before old ones are deleted; -1 for no limit.",
    ),
    (
        "metadata.max.retention.ms",
        T.LONG,
        WEEK_MS,
        at_least(-1),
        "Age at which metadata snapshots and the log before them are deleted; -1 for never.",
    ),
    (
        "metadata.max.idle.interval.ms",
        T.INT,
        500,
        at_least(0),
        "Time after which an idle controller appends a no-op record; 0 for never.",
    ),
)

_WITHOUT_EFFECT: Final[tuple[tuple[str, ConfigType, Value], ...]] = (
    ("num.network.threads", T.INT, 3),
    ("num.io.threads", T.INT, 8),
    ("background.threads", T.INT, 10),
    ("queued.max.requests", T.INT, 500),
    ("socket.send.buffer.bytes", T.INT, 102_400),
    ("socket.receive.buffer.bytes", T.INT, 102_400),
    ("replica.socket.receive.buffer.bytes", T.INT, 65_536),
    ("group.coordinator.threads", T.INT, 4),
    ("group.coordinator.background.threads", T.INT, 2),
    ("group.coordinator.append.linger.ms", T.INT, -1),
    ("group.coordinator.cached.buffer.max.bytes", T.INT, 1_048_588),
    ("share.coordinator.state.topic.replication.factor", T.SHORT, 3),
    ("share.coordinator.state.topic.min.isr", T.SHORT, 2),
    ("log.cleaner.threads", T.INT, 1),
    ("log.cleaner.io.buffer.size", T.INT, 524_288),
)

_OWN: Final[tuple[Row, ...]] = (
    (
        "pykraft.admin.listener",
        T.STRING,
        "localhost:0",
        None,
        "host:port of a controller's gRPC admin service; port 0 takes a free one.",
    ),
    (
        "pykraft.admin.allow.plaintext",
        T.BOOLEAN,
        False,
        None,
        "Whether the admin service may listen without TLS on other than loopback addresses.",
    ),
    (
        "pykraft.metrics.listener",
        T.STRING,
        "localhost:0",
        None,
        "host:port of metrics, health and readiness over HTTP; port 0 takes a free one.",
    ),
    (
        "pykraft.shutdown.timeout.ms",
        T.INT,
        30_000,
        at_least(0),
        "Longest time a stopping broker waits for its leaderships to be moved.",
    ),
    (
        "pykraft.log.level",
        T.STRING,
        "info",
        one_of("debug", "info", "warning", "error"),
        "Least severe level that is logged.",
    ),
)


def _node(row: Row, required: bool = False, update: Update = Update.READ_ONLY) -> ConfigDef:
    name, kind, default, rule, text = row
    return ConfigDef(
        name=name,
        type=kind,
        default=default,
        help=text,
        scope=Scope.NODE,
        rule=rule,
        required=required,
        update=update,
    )


NODE_CONFIGS: Final[tuple[ConfigDef, ...]] = (
    *(_node(row, required=True) for row in _REQUIRED),
    *(_node(row) for row in (*_NETWORK, *_QUORUM, *BROKER_ROWS, *LOG_ROWS)),
    *(_node(row) for row in (*OFFSETS_ROWS, *GROUP_ROWS)),
    *(_node(row, update=Update.CLUSTER_WIDE) for row in TOPIC_DEFAULT_ROWS),
    *(
        _node((name, kind, default, None, "Accepted from Kafka's files; without effect here."))
        for name, kind, default in _WITHOUT_EFFECT
    ),
    *(_node(row) for row in _OWN),
)
