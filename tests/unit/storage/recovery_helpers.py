"""Logs that are filled, left or closed, and opened again."""

from uuid import UUID

from storage_helpers import batch

from storage.config import LogConfig
from storage.log import Log
from world.memory import memory_env

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, retention_ms=-1)
CONTIGUOUS = LogConfig(
    segment_bytes=2000, index_interval_bytes=200, retention_ms=-1, contiguous=True
)
PATH = "/log/t-0"
TOPIC_ID = UUID(int=77)


async def filled(media, batches=60, config=CONFIG, flush_at=None, close=True):
    """A log of several segments, closed cleanly (or left alone)."""
    env = memory_env(disk=media.mount())
    log = await Log.open(env, PATH, config)
    await log.set_topic_id(TOPIC_ID)
    for number in range(batches):
        data = batch(
            3, time=1000 + 10 * number, producer_id=5, producer_epoch=0, base_sequence=3 * number
        )
        log.append_as_leader([data], number // 20)
        if number + 1 == flush_at:
            await log.flush()
    if close:
        await log.close()
    return log


async def reopened(media, config=CONFIG, **options):
    media.kill()
    return await Log.open(memory_env(disk=media.mount()), PATH, config, **options)
