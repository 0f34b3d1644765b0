"""The log cleaner's shell: picks the dirtiest compacted log and has it cleaned, one at a time."""

from __future__ import annotations

import asyncio
from uuid import UUID

import structlog

from broker.config import BrokerConfig
from broker.replica import Replica
from broker.replica_manager import ReplicaManager
from storage.cleaning.dirt import Dirt, measure
from storage.cleaning.throttle import Throttle
from storage.cleaning.work import Limits, LogChanged
from storage.log import Log
from wire.errors import DamagedFile
from world.env import DiskError, DiskFull, Env

# So many logs are looked at before others get their turn.
_LOOK_AT_ONCE = 10


class Cleaner:
    """Keeps the compacted logs of a broker clean, each replica's for itself, whoever leads.

    A log that makes no sense is reported once and left alone until it is opened anew. `passes`
    counts those that were done; `uncleanable` logs that are left alone.
    """

    def __init__(self, env: Env, config: BrokerConfig, replicas: ReplicaManager) -> None:
        self._env = env
        self._backoff_ms = config.log_cleaner_backoff_ms
        self._replicas = replicas
        self._limits = Limits(
            config.log_cleaner_dedupe_buffer_size,
            config.log_cleaner_io_buffer_load_factor,
            Throttle(config.log_cleaner_io_max_bytes_per_second),
        )
        self._left_alone: dict[tuple[UUID, int], Log] = {}
        self._log = structlog.get_logger("broker.cleaner").bind(node_id=config.node_id)
        self.passes = 0

    @property
    def uncleanable(self) -> int:
        return sum(not log.closed for log in self._left_alone.values())

    async def run(self) -> None:
        """Cleans for ever; pauses for log.cleaner.backoff.ms where nothing is dirty enough."""
        while True:
            if not await self.clean_dirtiest():
                await asyncio.sleep(max(self._backoff_ms, 1) / 1000)

    async def clean_dirtiest(self) -> bool:
        """Does a pass over the log with the largest share of dirty bytes, of those that are due;
        whether there was one and it came to its end."""
        found = await self._dirtiest()
        return found is not None and await self._clean(*found)

    async def _dirtiest(self) -> tuple[Replica, Dirt] | None:
        wall_ms = self._env.clock.wall_ms()
        dirtiest: tuple[Replica, float] | None = None
        for number, replica in enumerate(self._replicas, 1):
            if number % _LOOK_AT_ONCE == 0:
                await asyncio.sleep(0)
            dirt = self._dirt(replica, wall_ms)
            if dirt is None or not dirt.is_due(replica.log.config):
                continue
            if dirtiest is None or dirt.ratio > dirtiest[1]:
                dirtiest = replica, dirt.ratio
        if dirtiest is None:
            return None
        # As it is now, and nothing comes between this and the start of the pass.
        dirt = self._dirt(dirtiest[0], wall_ms)
        return None if dirt is None or not dirt.dirty_bytes else (dirtiest[0], dirt)

    def _dirt(self, replica: Replica, wall_ms: int) -> Dirt | None:
        """None if the log is none to be cleaned."""
        log = replica.log
        if replica.failed or log.closed or not log.config.cleanup_compact:
            return None
        if self._left_alone.get((replica.topic_id, replica.index)) is log:
            return None
        try:
            return measure(log, replica.last_stable_offset(), wall_ms)
        except DamagedFile as error:
            self._leave_alone(replica, error)
        except DiskError as error:
            self._replicas.disk_failed(replica, error)
        return None

    async def _clean(self, replica: Replica, dirt: Dirt) -> bool:
        log = self._log.bind(topic=replica.topic, partition=replica.index)
        begun_ms = self._env.clock.now_ms()
        directory = replica.stored.directory
        try:
            done = await directory.clean_log(replica.topic, replica.index, dirt, self._limits)
        except LogChanged as error:
            log.info("cleaning_broken_off", reason=str(error))
            return False
        except DamagedFile as error:
            self._leave_alone(replica, error)
            return False
        except DiskFull as error:
            # The log is as it was. Next time there may be room.
            log.error("no_room_for_cleaning", reason=str(error))
            return False
        except DiskError as error:
            self._replicas.disk_failed(replica, error)
            return False
        self.passes += 1
        log.info(
            "log_cleaned",
            start=dirt.start,
            end=done.cleaned_to,
            keys=done.keys,
            segments=[done.segments_before, done.segments_after],
            bytes=[done.bytes_before, done.bytes_after],
            took_ms=self._env.clock.now_ms() - begun_ms,
        )
        return True

    def _leave_alone(self, replica: Replica, error: DamagedFile) -> None:
        left_alone = {key: log for key, log in self._left_alone.items() if not log.closed}
        self._left_alone = {**left_alone, (replica.topic_id, replica.index): replica.log}
        self._log.error(
            "log_cannot_be_cleaned",
            topic=replica.topic,
            partition=replica.index,
            path=error.path,
            position=error.position,
            reason=error.reason,
        )
