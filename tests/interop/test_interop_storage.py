"""JVM Kafka's dump tool reads every file of a partition directory that we wrote."""

import asyncio
import random
import re

import kafka_jvm
import pytest

from storage.config import LogConfig
from storage.log import Log
from wire.batch import build_batch
from world.real import real_env

pytestmark = pytest.mark.interop

# The tool moved from one jar and package to another.
TOOLS = {
    "4.1.1": "kafka.tools.DumpLogSegments",
    "4.3.1": "org.apache.kafka.tools.DumpLogSegments",
}
COMPLAINTS = re.compile(r"(?i)mismatch|out of order|not sound|corrupt|invalid|error|exception")


async def write(directory: str) -> int:
    """A log with rolls, truncation, every codec, producers and leader epochs; its end offset."""
    config = LogConfig(segment_bytes=60_000, index_interval_bytes=512, preallocate=True)
    env = real_env(4)
    log = await Log.open(env, directory, config)
    chance = random.Random(4)
    sequence = 0
    for number in range(400):
        count = chance.randrange(1, 9)
        records = [
            (1_700_000_000_000 + chance.randrange(10**6), b"k%d" % at, chance.randbytes(90), ())
            for at in range(count)
        ]
        fields = {"codec": number % 5}
        if number % 3 == 0:
            fields |= {"producer_id": 7, "producer_epoch": 1, "base_sequence": sequence}
            sequence += count
        log.append_as_leader([build_batch(records, **fields)], number // 90)
        if number == 250:
            log.truncate_to(log.end_offset - 100)
            await log.settle()
            sequence = log.producers.get(7).last_sequence + 1
    assert len(log.segments) > 3
    end = log.end_offset
    await log.close()
    return end


@pytest.mark.parametrize("version", sorted(TOOLS))
def test_the_dump_tool_has_no_complaint(version, tmp_path):
    directory = tmp_path / "topic-0"
    end = asyncio.run(write(str(directory)))
    names = sorted(path for path in directory.iterdir() if path.suffix != "")
    kinds = {path.suffix for path in names}
    assert kinds == {".log", ".index", ".timeindex", ".snapshot"}
    main, path = TOOLS[version], kafka_jvm.classpath(version)
    files = ",".join(str(name) for name in names)
    told = kafka_jvm.run_java(main, ["--deep-iteration", "--files", files], path)
    assert not COMPLAINTS.search(told.replace("isvalid: true", "")), told[-3000:]
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", told, re.MULTILINE)]
    assert sorted(offsets) == list(range(end))
    assert "producerId: 7" in told
    sane = kafka_jvm.run_java(main, ["--index-sanity-check", "--files", files], path)
    assert sane.count("passed sanity check") == 2 * sum(n.suffix == ".index" for n in names)
