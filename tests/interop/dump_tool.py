"""Kafka's dump tool, and what in its output is a complaint."""

import re

import kafka_jvm

DUMP_TOOLS = {
    kafka_jvm.DEFAULT_VERSION: "kafka.tools.DumpLogSegments",
    kafka_jvm.NEWEST_VERSION: "org.apache.kafka.tools.DumpLogSegments",
}
COMPLAINT = re.compile(
    r"isvalid: (?!true)|mismatch|corrupt|exception|error|found|invalid|unexpected|not found|skipp|"
    r"unknown|at \w+(\.\w+)+\(",
    re.IGNORECASE,
)


def dump(version, paths, *options):
    """What the release's dump tool prints of these files."""
    files = ",".join(str(path) for path in paths)
    tool, path = DUMP_TOOLS[version], kafka_jvm.classpath(version)
    return kafka_jvm.run_java(tool, ["--files", files, *options], path)


def complaints(text):
    """The lines in which the tool says that something is wrong; payloads are not looked at."""
    lines = (line.split(" payload:")[0].split(" value:")[0] for line in text.splitlines())
    return [line for line in lines if COMPLAINT.search(line)]
