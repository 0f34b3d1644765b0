"""A member of a group by aiokafka: see tests/support/foreign_clients.py."""

import asyncio
import json
import signal
import sys

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

COMMIT_EVERY = 50
ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}


def say(**what):
    print(json.dumps(what), flush=True)


class Owned(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        say(owns=[])

    def on_partitions_assigned(self, assigned):
        say(owns=sorted(place.partition for place in assigned))


async def member(bootstrap, group, topic, protocol, instance):
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=None if instance == "-" else instance,
        partition_assignment_strategy=[ASSIGNORS[protocol]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe([topic], listener=Owned())
    await consumer.start()
    try:
        while not stopped.is_set():
            polled = await consumer.getmany(timeout_ms=200, max_records=COMMIT_EVERY)
            got = [(r.partition, r.offset, r.value.decode()) for rs in polled.values() for r in rs]
            if not got:
                continue
            say(got=got)
            try:
                await consumer.commit()
            except KafkaError as error:
                say(not_committed=repr(error))
    finally:
        await consumer.stop()


if __name__ == "__main__":
    _, bootstrap, *rest = sys.argv[1:]
    asyncio.run(member(bootstrap, *rest))
