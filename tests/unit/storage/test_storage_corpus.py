"""Logs that real Kafka nodes wrote, opened as after an unclean stop."""

import json
import shutil

from storage_helpers import read_all, run

from storage.config import LogConfig
from storage.log import Log
from world.real import real_env


def test_logs_of_real_nodes_are_opened_whole(corpus, tmp_path):
    async def main():
        env = real_env(1)
        opened = 0
        for case in sorted(corpus.glob("c*")):
            nodes = json.loads((case / "expected.json").read_text())["nodes"]
            for name, expected in sorted(nodes.items())[:1]:
                source = case / name / "__cluster_metadata-0"
                if not 0 < expected["batches"] < 16_000 or not source.is_dir():
                    continue
                target = tmp_path / f"{case.name}-{name}"
                shutil.copytree(source, target)
                log = await Log.open(env, str(target), LogConfig(contiguous=True))
                assert not log.recovery.cut, case.name
                assert log.recovery.damage is None
                assert log.log_start_offset == expected["startOffset"]
                assert log.end_offset == expected["endOffset"]
                assert log.last_epoch == expected["lastEpoch"]
                data = read_all(log, max_bytes=500_000)
                await log.close()
                log = await Log.open(env, str(target), LogConfig(contiguous=True), clean=True)
                assert not log.recovery.rebuilt
                assert log.end_offset == expected["endOffset"]
                assert len(data) == log.size
                await log.close()
                shutil.rmtree(target)
                opened += 1
        assert opened > 8

    run(main())
