"""Carries a fault plan out on a simulation, within the budget that docs/testing.md states.

A plan was made without knowing the run. When a fault's time has come, its target is looked up, and
what would leave the budget is weakened (a power cut to a kill) or left out:

- Synced data is damaged on one controller at a time, the next only when that one has healed; only
  records below the synced offset that its disk says, since above it damage is a torn tail. How far
  that offset has to reach, and that such damage is noticed, is checked.
- A broker loses unsynced data only while every partition of it has all its replicas in sync, and
  until it is back in all of them no other broker is hit by anything that may take it out, nor a
  controller: where no broker finds an active one, all leave the ISR, and who lost data may be the
  last. With eligible leader replicas a controller may be hit, or one more broker, before or after,
  while a third stays unhurt.

So many may be left out; in place of further ones connections of clients are reset, which is within
every budget, so that a whole plan does harm at least `LEAST_FAULTS` times.

It also starts again whoever is down, as an operator's supervisor does: after a fault's own time,
or a second after a node has ended by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from metadata.features import ELIGIBLE_LEADER_REPLICAS
from metadata.image import MetadataImage
from metadata.records.types import NO_LEADER
from pykraft.node import Node
from simulation import damage
from simulation.checks.watcher import Watcher
from simulation.clients.operator import Change, Operator
from simulation.cluster import Quorum
from simulation.door import active_controllers, not_voting
from simulation.machine import Machine
from simulation.plan import ACTIVE, Cast, Fault, Plan, Target
from simulation.run import Simulation

LEAST_FAULTS = 30
"""That a plan of more than that many carries out."""

_LOOK_EVERY_MS = 20
_RESTART_AFTER_MS = 1_000
_NEVER = 1 << 60
_HARMLESS = ("sync", "clock", "slow", "lose", "stall", "clients")


class Saboteur:
    """One run's. `done` counts faults by kind, `left_out` those that the budget forbade."""

    def __init__(
        self, simulation: Simulation, cast: Cast, plan: Plan, watcher: Watcher, topic: str
    ) -> None:
        self.done: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.calm = False
        self.operator: Operator | None = None
        self._simulation = simulation
        self._cast = cast
        self._watcher = watcher
        self._topic = topic
        # Of a plan that is short already, by hand or by `simulation.shrink`, any.
        spare = len(plan) - LEAST_FAULTS
        self._may_leave_out = spare if spare > 0 else len(plan)
        self._up_at: dict[int, int] = {}
        self._next_ops: dict[int, Fault] = {}
        self._durability = damage.Durability()
        self._reboots: dict[int, None] = {}
        # Brokers that lost unsynced data, with the offset of the metadata log at that time.
        self._lossy: dict[int, int] = {}
        # Brokers whose process ended, likewise: the controller may not know it yet.
        self._ended: dict[int, int] = {}
        self._untouchable_until: dict[int, int] = {}
        # Until when a node may take its followers for slow, and be about to go on without them.
        self._alone_until: dict[int, int] = {}
        self._act: dict[str, Callable[[Fault, int], bool]] = {
            "kill": self._kill,
            "power": self._power,
            "ops": self._ops,
            "restart": self._restart,
            "roll": self._roll,
            "pause": self._pause,
            "cut": self._cut,
            "isolate": self._isolate,
            "slow": self._slow,
            "stall": self._stall,
            "lose": self._lose,
            "clients": self._clients,
            "sync": self._sync,
            "full": self._full,
            "fail_sync": self._fail_sync,
            "flip": self._flip,
            "clock": self._clock,
            "member": self._member,
        }
        for fault in plan:
            simulation.at(fault.at_ms, partial(self._perform, fault))
        simulation.at(simulation.now_ms + _LOOK_EVERY_MS, self._supervise)

    def heal(self) -> None:
        """Everything that is wrong is put right, and nothing more is done."""
        self.calm = True
        simulation = self._simulation
        simulation.tell("plan", "all faults end")
        simulation.network.heal()
        self._up_at.clear()
        self._next_ops.clear()
        for machine in simulation.machines:
            machine.free_disk()
            # A leader that is over an hour behind its clients refuses their records' times.
            machine.set_clock()
            machine.disk.faults.failing_syncs = 0
            machine.slow_fsync(0)
            machine.kill(ops=_NEVER)
            if machine.loop is not None and machine.loop.paused:
                machine.loop.go_on()

    # -- who, and whether ----------------------------------------------------------------------

    def _perform(self, fault: Fault) -> None:
        if self.calm:
            return
        node_id = self._resolve(fault.target)
        act = self._act.get(fault.kind)
        if act is not None and self._allowed(fault, node_id) and act(fault, node_id):
            self.done[fault.kind] += 1
            return
        self.left_out[fault.kind] += 1
        if self.left_out.total() > self._may_leave_out:
            self._clients(fault._replace(args={"how": "lose", "ms": 0}), node_id)
            self.done["clients"] += 1

    def _resolve(self, target: Target) -> int:
        if isinstance(target, int):
            return target
        if target == ACTIVE:
            active = active_controllers(self._simulation, self._cast.controllers)
            # Several may think so; the newest is the one that matters.
            return max(active, key=self._epoch) if active else self._cast.controllers[0]
        image = self._image()
        partition = None if image is None else image.partition(self._topic, 0)
        if partition is not None and partition.leader != NO_LEADER:
            return partition.leader
        return self._cast.brokers[0]

    def _epoch(self, node_id: int) -> int:
        node = self._simulation.node(node_id)
        assert node is not None
        assert node.controller is not None
        return node.controller.core.epoch or 0

    def _image(self) -> MetadataImage | None:
        return self._watcher.images.newest

    def _allowed(self, fault: Fault, node_id: int) -> bool:
        """Whether a node may be hit while a broker's data is not whole.

        With eligible leader replicas a second broker may be, as long as a third is left unhurt:
        where all have ended uncleanly nobody can tell who lost something. From then on the third
        has to stay in the ISR, so nothing may keep it from an active controller either. Without,
        that is so from the first on: who is last in the ISR leads, unclean or not (KIP-966).
        """
        if fault.kind in _HARMLESS:
            return True
        self._forget_whole()
        if node_id not in self._cast.brokers:
            may_hurt = 1 if self._has_elr() else 0
            return not (self._lossy and len({**self._lossy, **self._ended}) > may_hurt)
        lossy = [broker for broker in self._lossy if broker != node_id]
        if not lossy:
            return True
        return (
            self._has_elr()
            and self._quorum_is_calm()
            and bool(self._unhurt(without=(*lossy, node_id)))
        )

    def _quorum_is_calm(self) -> bool:
        now_ms = self._simulation.now_ms
        return all(self._untouchable_until.get(n, 0) <= now_ms for n in self._cast.controllers)

    def _unhurt(self, *, without: tuple[int, ...]) -> list[int]:
        """Brokers that run, in sync, and had nothing done to them since."""
        now_ms, image = self._simulation.now_ms, self._image()
        self._forget_whole()
        return [
            broker
            for broker in self._cast.brokers
            if broker not in (*without, *self._ended, *self._lossy)
            and self._simulation.machine(broker).running
            and self._untouchable_until.get(broker, 0) <= now_ms
            and image is not None
            and self._in_sync(image, broker)
        ]

    def _has_elr(self) -> bool:
        image = self._image()
        return image is not None and image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1

    def _forget_whole(self) -> None:
        """Brokers are whole again once they are in sync in a new life."""
        image = self._image()
        if image is None:
            return
        for ended in (self._lossy, self._ended):
            for broker_id, since in list(ended.items()):
                broker = image.brokers.get(broker_id)
                if broker is not None and broker.epoch > since and self._in_sync(image, broker_id):
                    del ended[broker_id]

    def _in_sync(self, image: MetadataImage, broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return (broker is not None and not broker.fenced) and all(
            broker_id in topic.partitions[index].isr
            for topic, index in image.partitions_of_broker(broker_id)
        )

    def _may_lose(self, node_id: int) -> bool:
        """Whether a node may lose unsynced data now. If so, it is noted that it does."""
        if node_id not in self._cast.brokers:
            return True
        if len(self._cast.brokers) == 1:
            return False  # nobody else has what it would lose
        image = self._image()
        self._forget_whole()
        if image is None or [broker for broker in self._lossy if broker != node_id]:
            return False
        if self._alone_until.get(node_id, 0) > self._simulation.now_ms:
            return False
        has_elr, unhurt = self._has_elr(), self._unhurt(without=(node_id,))
        is_first = not [broker for broker in self._ended if broker != node_id]
        if not (has_elr and is_first) and not self._quorum_is_calm():
            return False
        needed = 1 if has_elr else len(self._cast.brokers) - 1
        if len(unhurt) < min(needed, len(self._cast.brokers) - 1):
            return False
        for topic, index in image.partitions_of_broker(node_id):
            partition = topic.partitions[index]
            if len(partition.replicas) > 1 and len(partition.isr) < len(partition.replicas):
                return False
        self._lossy[node_id] = image.last_offset
        return True

    def _hurt(self, node_id: int, ms: int) -> None:
        """A node may be out for so long, and a session more until it is known to be."""
        until_ms = self._simulation.now_ms + ms + 4_000
        self._untouchable_until[node_id] = max(until_ms, self._untouchable_until.get(node_id, 0))

    # -- down and up ---------------------------------------------------------------------------

    def _supervise(self) -> None:
        now_ms = self._simulation.now_ms
        for machine in self._simulation.machines:
            node_id = machine.number
            if machine.running:
                if node_id in self._cast.controllers:
                    self._durability.look(machine, now_ms)
                continue
            self._has_ended(node_id)
            if node_id not in self._up_at:
                wait_ms = 0 if self.calm else _RESTART_AFTER_MS
                fault = self._next_ops.get(node_id)
                if fault is not None and machine.exit is None:
                    wait_ms = int(fault.args["down_ms"])
                self._up_at[node_id] = now_ms + wait_ms
            if now_ms >= self._up_at[node_id]:
                self._start(machine)
        self._simulation.at(now_ms + _LOOK_EVERY_MS, self._supervise)

    def _start(self, machine: Machine) -> None:
        node_id = machine.number
        del self._up_at[node_id]
        if node_id in self._reboots:
            # After a failed sync the page cache lies about what is on the disk: boot anew.
            del self._reboots[node_id]
            machine.kill(power=True)
        machine.start()
        fault = self._next_ops.pop(node_id, None)
        if fault is not None and fault.args.get("armed_down") and not self.calm:
            self._arm(fault, machine)

    def _arm(self, fault: Fault, machine: Machine) -> None:
        """It dies at a later operation: whether it may lose data is looked at only then."""

        def power() -> bool:
            return bool(fault.args["power"]) and self._may_lose(machine.number)

        machine.kill(power, ops=int(fault.args["count"]))

    def _has_ended(self, node_id: int) -> None:
        image = self._image()
        if node_id in self._cast.brokers and image is not None:
            self._ended[node_id] = image.last_offset

    def _down(self, node_id: int, down_ms: int) -> None:
        self._has_ended(node_id)
        self._up_at[node_id] = self._simulation.now_ms + down_ms
        self._hurt(node_id, down_ms)

    def _kill(self, fault: Fault, node_id: int) -> bool:
        machine = self._simulation.machine(node_id)
        if not machine.running:
            return False
        machine.kill()
        self._down(node_id, int(fault.args["down_ms"]))
        return True

    def _power(self, fault: Fault, node_id: int) -> bool:
        machine = self._simulation.machine(node_id)
        if not self._may_lose(node_id):
            return self._kill(fault, node_id)
        self._durability.cut_power(machine, self._simulation.now_ms)
        self._down(node_id, int(fault.args["down_ms"]))
        return True

    def _ops(self, fault: Fault, node_id: int) -> bool:
        machine = self._simulation.machine(node_id)
        if not machine.running:
            # It dies in the first operations of its next life.
            self._next_ops[node_id] = fault._replace(args={**fault.args, "armed_down": True})
            return True
        self._next_ops[node_id] = fault
        self._arm(fault, machine)
        self._hurt(node_id, 2_000)
        return True

    def _restart(self, fault: Fault, node_id: int) -> bool:
        machine = self._simulation.machine(node_id)
        if not machine.running:
            return False
        machine.stop()
        self._hurt(node_id, 3_000)
        return True

    def _roll(self, fault: Fault, node_id: int) -> bool:
        ids = self._cast.everyone
        for turn, other in enumerate(ids):
            one = Fault(0, "restart", other, fault.args)
            at_ms = self._simulation.now_ms + turn * int(fault.args["every_ms"])
            self._simulation.at(at_ms, partial(self._perform, one))
        return True

    def _pause(self, fault: Fault, node_id: int) -> bool:
        machine = self._simulation.machine(node_id)
        if not machine.running:
            return False
        machine.pause(int(fault.args["ms"]))
        self._hurt(node_id, int(fault.args["ms"]))
        self._alone_until[node_id] = self._untouchable_until[node_id]
        return True

    # -- the network ---------------------------------------------------------------------------

    def _until(self, fault: Fault, node_id: int) -> int:
        self._hurt(node_id, int(fault.args["ms"]))
        self._alone_until[node_id] = self._untouchable_until[node_id]
        return self._simulation.now_ms + int(fault.args["ms"])

    def _other(self, fault: Fault, node_id: int) -> int:
        """The other end; a role may have turned out to be just that one."""
        other = int(fault.args["to"])
        return other if other != node_id else next(n for n in self._cast.everyone if n != other)

    def _cut(self, fault: Fault, node_id: int) -> bool:
        other, until_ms = self._other(fault, node_id), self._until(fault, node_id)
        self._simulation.network.cut(node_id, other, until_ms)
        if fault.args["both"]:
            self._simulation.network.cut(other, node_id, until_ms)
        return True

    def _isolate(self, fault: Fault, node_id: int) -> bool:
        until_ms = self._until(fault, node_id)
        for other in self._cast.everyone:
            if other != node_id:
                self._simulation.network.cut(node_id, other, until_ms)
                if fault.args["both"]:
                    self._simulation.network.cut(other, node_id, until_ms)
        return True

    def _slow(self, fault: Fault, node_id: int) -> bool:
        other, until_ms = self._other(fault, node_id), self._until(fault, node_id)
        self._simulation.network.slow(node_id, other, int(fault.args["extra_ms"]), until_ms)
        return True

    def _stall(self, fault: Fault, node_id: int) -> bool:
        other, until_ms = self._other(fault, node_id), self._until(fault, node_id)
        self._simulation.network.stall(node_id, other, until_ms)
        return True

    def _lose(self, fault: Fault, node_id: int) -> bool:
        self._simulation.network.lose(node_id, self._other(fault, node_id))
        return True

    def _clients(self, fault: Fault, node_id: int) -> bool:
        network = self._simulation.network
        until_ms = self._simulation.now_ms + int(fault.args["ms"])
        for client in self._simulation.clients:
            match fault.args["how"]:
                case "mute":
                    network.cut(node_id, client, until_ms)
                case "deaf":
                    network.cut(client, node_id, until_ms)
                case _:
                    network.lose(node_id, client)
        return True

    # -- disks and clocks ----------------------------------------------------------------------

    def _sync(self, fault: Fault, node_id: int) -> bool:
        until_ms = self._simulation.now_ms + int(fault.args["ms"])
        self._simulation.machine(node_id).slow_fsync(int(fault.args["slow_ms"]), until_ms)
        return True

    def _full(self, fault: Fault, node_id: int) -> bool:
        machine = self._simulation.machine(node_id)
        machine.fill_disk()
        self._hurt(node_id, int(fault.args["ms"]))
        self._simulation.at(self._simulation.now_ms + int(fault.args["ms"]), machine.free_disk)
        return True

    def _fail_sync(self, fault: Fault, node_id: int) -> bool:
        machine = self._simulation.machine(node_id)
        if not machine.running or not self._may_lose(node_id):
            return False
        machine.fail_sync(int(fault.args["count"]))
        self._reboots[node_id] = None
        self._hurt(node_id, 5_000)
        return True

    def _flip(self, fault: Fault, node_id: int) -> bool:
        """Damages the metadata log of a controller, if all the others' are whole."""
        others = [n for n in self._cast.controllers if n != node_id]
        if not all(self._is_whole(n) for n in others):
            return False
        if self.operator is None or not self.operator.idle:
            return False  # with a voter out, one more is a majority
        if not_voting(self._simulation, self._cast.controllers):
            return False
        machine = self._simulation.machine(node_id)
        self._durability.cut_power(machine, self._simulation.now_ms)
        self._down(node_id, int(fault.args["down_ms"]))
        synced, batches = damage.covered_batches(machine)
        if not batches:
            return False
        batch, position = damage.choose(batches, fault.args["place"])
        machine.flip_bit(batch.path, position, 0x10)
        self._watcher.quorum.spoil(node_id, synced, batch)
        return True

    def _member(self, fault: Fault, node_id: int) -> bool:
        """A controller leaves the quorum and comes back, now and then with another disk. While
        it is out the others are too few to lose any, so they have to be whole."""
        operator = self.operator
        if operator is None or not operator.idle:
            return False
        if node_id not in self._cast.controllers or len(self._cast.controllers) < 3:
            return False
        if not all(self._is_whole(n) for n in self._cast.controllers):
            return False
        # Who joins by itself may be a voter again before its disk is taken out: a voter's.
        joins = self._simulation.cluster.quorum is Quorum.JOINING
        new_disk = fault.args["place"] < 0.4 and not joins
        operator.ask(Change(node_id, int(fault.args["down_ms"]), new_disk=new_disk))
        return True

    def replace_disk(self, node_id: int) -> None:
        """A machine's disk is taken out, and it starts with another."""
        simulation = self._simulation

        def replace() -> None:
            simulation.machine(node_id).kill(power=True)
            simulation.cluster.replace_disk(node_id)
            self._up_at[node_id] = simulation.now_ms + 100
            simulation.world.count("replaced disks")

        # Not in the step of whoever asked: that is another machine's.
        simulation.at(simulation.now_ms, replace)

    def _is_whole(self, node_id: int) -> bool:
        node: Node | None = self._simulation.node(node_id)
        if node is None or node.raft is None or not node.raft.status():
            return node_id not in self._watcher.quorum.spoiled
        return node.raft.core.state.needs_end is None

    def _clock(self, fault: Fault, node_id: int) -> bool:
        self._simulation.machine(node_id).clock_jump(int(fault.args["jump_ms"]))
        return True
