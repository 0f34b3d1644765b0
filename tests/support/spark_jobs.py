"""Spark's Kafka source and sink at work, in a process that does only this: see `SparkProcess`.

The functions run there, on its one session. Streams have names.
"""

import multiprocessing
import os
import shlex
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

POM = Path(__file__).resolve().parent.parent / "clients" / "spark" / "pom.xml"
TIMEOUT_S = 600

_session = None
_streams = {}
_batches = {}


class SparkProcess:
    """The process, for a `with`: `run` calls one of this module's functions in it.

    A process has one session, and that of the audits' tests is without the connector.
    """

    def __init__(self):
        from kafka_jvm import resolved, skip_or_fail

        from spark_audit.files import AuditError
        from spark_audit.java import find_java
        from spark_audit.session import check_installed

        try:
            check_installed()
            find_java()
        except AuditError as error:
            skip_or_fail(str(error))
        self._jars = resolved(POM, "spark-kafka")

    def __enter__(self):
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        self.run(start, self._jars)
        return self

    def __exit__(self, *failure):
        self._pool.submit(end)
        self._pool.shutdown()

    def run(self, function, *arguments, **options):
        """What the function returns."""
        return self._pool.submit(function, *arguments, **options).result(TIMEOUT_S)


def start(jars):
    """Starts the session with the connector's jars."""
    global _session
    from spark_audit import session

    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(["--driver-class-path", jars, "pyspark-shell"])
    _session = session.start("local[2]", app="kafka", quiet=True)


def end():
    """Ends all streams and the session."""
    for query in _streams.values():
        query.stop()
    _session.stop()


def write(bootstrap, topic, count):
    """The sink: record i of three partitions has itself as key, value and header `n`.

    Every tenth has no key, every seventh an empty value; the header `none` has no value.
    """
    columns = (
        "cast(id % 3 as int) as partition",
        "if(id % 10 = 0, null, concat('k', id)) as key",
        "if(id % 7 = 0, '', concat('v', id)) as value",
        """array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary)),
                 named_struct('key', 'none', 'value', cast(null as binary))) as headers""",
    )
    rows = _session.range(count).selectExpr(*columns)
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeHeaders": "true"}
    rows.write.format("kafka").options(**sink).save()


def read(bootstrap, topic, starting, ending):
    """The source, between offsets: (partition, offset, key, value, headers) of each record."""
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    source |= {"startingOffsets": starting, "endingOffsets": ending}
    rows = _session.read.format("kafka").options(**source).load().collect()
    return [
        (
            row.partition,
            row.offset,
            row.key and bytes(row.key),
            bytes(row.value),
            [(header.key, header.value and bytes(header.value)) for header in row.headers],
        )
        for row in rows
    ]


def _stream(bootstrap, topic, at_once):
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    source |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": at_once}
    return _session.readStream.format("kafka").options(**source).load()


def follow(name, checkpoint, bootstrap, topic, at_once):
    """Begins a stream, or goes on with that of the checkpoint, for `batches` to show."""
    found = _batches.setdefault(name, [])

    def keep(rows, batch):
        rows = rows.select("partition", "offset", "value").collect()
        rows = [(row.partition, row.offset, bytes(row.value)) for row in rows]
        # Each partition is one task's, in its order; which comes first is open.
        found.append((batch, sorted(rows, key=lambda row: row[0])))

    stream = _stream(bootstrap, topic, at_once).writeStream.foreachBatch(keep)
    _streams[name] = stream.option("checkpointLocation", str(checkpoint)).start()


def copy(name, checkpoint, bootstrap, topic, target, at_once):
    """Begins a stream from source to sink, partition by partition."""
    rows = _stream(bootstrap, topic, at_once).select("partition", "key", "value")
    sink = {"kafka.bootstrap.servers": bootstrap, "topic": target}
    sink["checkpointLocation"] = str(checkpoint)
    _streams[name] = rows.writeStream.format("kafka").options(**sink).start()


def _alive(name):
    query = _streams[name]
    assert query.isActive, f"{name} ended: {query.exception()}"
    return query


def batches(name):
    """(number, its records) of each batch so far; a batch that was cut off comes again."""
    _alive(name)
    return _batches[name]


def copied(name):
    """How many records a stream's finished batches had, the last hundred of them."""
    return sum(one["numInputRows"] for one in _alive(name).recentProgress)


def stop(name):
    """Stops a stream wherever it is."""
    _alive(name).stop()
