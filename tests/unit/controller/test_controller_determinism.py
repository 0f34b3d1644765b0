"""The same seed gives the same log, whatever the hash seed of the process."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def digest_of_a_life() -> str:
    from controller_scene import Scene

    scene = Scene(seed=11, leader_imbalance_check_interval_ms=10_000).lead()
    for broker in range(1, 7):
        scene.start_broker(broker, rack=f"r{broker % 3}")
    for name in ("a.b", "c", "d_e"):
        scene.create_topic(name, 12, 3, configs={"retention.ms": "5", "segment.ms": "9"})
    scene.pass_ms(12_000, alive=(2, 3, 5))
    scene.start_broker(1)
    scene.heartbeat(2, want_shut_down=True)
    scene.fail_over()
    scene.pass_ms(30_000, alive=(1, 3, 5))
    return hashlib.sha256(b"".join(v for _, _, values in scene.log for v in values)).hexdigest()


def test_the_hash_seed_decides_nothing():
    code = "import test_controller_determinism as t; print(t.digest_of_a_life())"
    digests = []
    for hash_seed in ("1", "2"):
        path = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support", Path(__file__).parent)))
        env = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        digests.append(done.stdout.strip())
    assert digests[0] == digests[1]
    assert len(digests[0]) == 64
