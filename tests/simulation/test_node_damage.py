"""What a node's disk says of its metadata log after a power cut, and what damage it notices."""

import pytest

from raft.metadata_log import MetadataLog
from simulation import damage
from simulation.run import Simulation

CONTROLLERS = (101, 102, 103)


def durable_end(simulation, node_id):
    return simulation.node(node_id).raft.core.state.log.synced_end


def test_the_last_records_of_a_cluster_that_rests_are_covered(monkeypatch):
    """And nothing is synced, or planned, while it rests."""
    syncs = []
    real = MetadataLog.harden

    async def harden(self):
        syncs.append(self.config.node_id)
        await real(self)

    monkeypatch.setattr(MetadataLog, "harden", harden)
    with Simulation(5, properties={"metadata.max.idle.interval.ms": "0"}) as simulation:
        simulation.run_until(8_000)
        ends = {id: durable_end(simulation, id) for id in CONTROLLERS}
        assert min(ends.values()) > 5
        before = len(syncs)
        assert before >= len(ends)
        simulation.run_until(20_000)
        assert len(syncs) == before
        for id, end in ends.items():
            assert durable_end(simulation, id) == end
            simulation.machine(id).kill(power=True)
            assert damage.synced_offset(simulation.machine(id)) == end


@pytest.mark.parametrize("seed", range(6))
def test_damage_of_records_that_are_a_second_old_is_noticed_after_a_power_cut(seed):
    told = []
    with Simulation(seed) as simulation:
        simulation.on_log.append(
            lambda machine, level, event, fields: told.append((machine, event))
        )
        simulation.run_until(6_000 + 97 * seed)
        machine = simulation.machine(CONTROLLERS[seed % 3])
        end = durable_end(simulation, machine.number)
        simulation.run_until(simulation.now_ms + 1_100)
        machine.kill(power=True)
        synced, batches = damage.covered_batches(machine)
        assert synced >= end > 0
        last = next(batch for batch in batches if batch.end >= end)
        machine.flip_bit(last.path, last.position + last.length - 1)
        machine.start()
        simulation.run_until(simulation.now_ms + 500)
        assert (machine.name, "metadata_log_damaged") in told
        simulation.run_until(simulation.now_ms + 5_000)
        assert simulation.node(machine.number).raft.core.state.needs_end is None


def test_a_file_that_was_only_written_says_less_after_a_power_cut(monkeypatch):
    """What the second of the tests above would find without the sync."""
    monkeypatch.setattr("raft.hardening.Hardening.moved", lambda self: None)
    lags = []
    for seed in range(6):
        with Simulation(seed) as simulation:
            simulation.run_until(6_000)
            end = durable_end(simulation, 101)
            simulation.run_until(simulation.now_ms + 1_100)
            simulation.machine(101).kill(power=True)
            lags.append(damage.synced_offset(simulation.machine(101)) < end)
    assert any(lags)
