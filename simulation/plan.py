"""Fault plans: explicit lists of what goes wrong when, made before a run, from their own stream.

A plan is a value: it can be printed as JSON, thinned out (`simulation.shrink`), kept in a test and
replayed. Which kinds of fault a seed has is drawn (swarm testing: rare combinations come up when
most other kinds are off), and `_COMBINATIONS` are put in on purpose: faults that only together
reach the places where systems break.

A fault that would leave the budget (docs/testing.md) when its time has come is weakened or left
out by `simulation.saboteur`, which looks at the cluster; a plan alone can't know.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

ACTIVE = "active"
LEADER = "leader"
"""Targets that are a role: the active controller, the leader of the first data partition."""

Target = int | str


class Fault(NamedTuple):
    """One thing that goes wrong. Times are virtual ms. What `args` has, by kind:

    kill, power       down_ms: process ended or power cut, started again after it
    ops               count, power, down_ms: as above, at the count-th operation from now on
    restart           down_ms: stopped as an operator would, started again
    roll              down_ms, every_ms: `restart` of every node, one after the other
    pause             ms: stands still
    cut               to, ms, both: nothing gets from target to `to` (and back)
    isolate           ms, both: as cut, to everybody
    slow              to, extra_ms, ms: a slow link
    stall             to, ms: a link that holds bytes back and lives on
    lose              to: connections between the two are reset
    clients           how, ms: what is between target and all clients. mute: nothing it says gets
                      there; deaf: nothing they say; lose: their connections are reset
    sync              ms, slow_ms: every fsync takes slow_ms longer
    full              ms: no space left
    fail_sync         count: so many fsyncs fail, and what they covered is lost
    flip              down_ms, place: power cut, and a byte of the metadata log damaged
    clock             jump_ms: the date jumps
    member            down_ms: a controller leaves the quorum and comes back
    """

    at_ms: int
    kind: str
    target: Target
    args: dict[str, Any]


Plan = list[Fault]


def to_json(plan: Sequence[Fault]) -> str:
    """One line a fault, so that it can be read and edited."""
    return "[\n" + ",\n".join(json.dumps(list(fault)) for fault in plan) + "\n]"


def from_json(text: str) -> Plan:
    """The plan again. ValueError, naming the entry, where it isn't one."""
    document = json.loads(text)
    if not isinstance(document, list):
        raise ValueError(f"a plan is a list of faults, not {type(document).__name__}")
    plan = []
    for number, entry in enumerate(document):
        match entry:
            case [int(at_ms), str(kind), int() | str() as target, dict(args)] if kind in KINDS:
                plan.append(Fault(at_ms, kind, target, args))
            case _:
                raise ValueError(
                    f"fault {number}: {json.dumps(entry)} is not [ms, kind, target, args] with a "
                    f"kind of {', '.join(KINDS)}"
                )
    return plan


@dataclass(frozen=True, slots=True)
class Cast:
    """Who can be hit: ids of controllers and brokers."""

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]

    @property
    def everyone(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.controllers, *self.brokers)))


def _down_ms(chance: random.Random) -> int:
    """Often back before anybody has noticed, sometimes after everybody has."""
    return chance.randint(20, chance.choice((200, 1_500, 8_000)))


def _ms(chance: random.Random) -> int:
    return chance.randint(50, chance.choice((500, 2_500, 8_000)))


def _other(chance: random.Random, cast: Cast, target: Target) -> int:
    others = [node for node in cast.everyone if node != target]
    return chance.choice(others or list(cast.everyone))


def _args(kind: str, chance: random.Random, cast: Cast, target: Target) -> dict[str, Any]:
    match kind:
        case "kill" | "power" | "restart":
            return {"down_ms": _down_ms(chance)}
        case "flip" | "member":
            return {"down_ms": _down_ms(chance), "place": round(chance.random(), 4)}
        case "ops":
            return {
                "count": chance.choice((chance.randint(1, 12), chance.randint(1, 150))),
                "power": chance.random() < 0.5,
                "down_ms": _down_ms(chance),
            }
        case "roll":
            return {"down_ms": chance.randint(50, 600), "every_ms": chance.randint(1_500, 5_000)}
        case "pause" | "full":
            return {"ms": _ms(chance)}
        case "cut":
            both = chance.random() < 0.3
            return {"to": _other(chance, cast, target), "ms": _ms(chance), "both": both}
        case "isolate":
            return {"ms": _ms(chance), "both": chance.random() < 0.6}
        case "slow":
            extra_ms = chance.choice((20, 150, 900))
            return {"to": _other(chance, cast, target), "extra_ms": extra_ms, "ms": _ms(chance)}
        case "stall":
            return {"to": _other(chance, cast, target), "ms": _ms(chance)}
        case "lose":
            return {"to": _other(chance, cast, target)}
        case "clients":
            return {"how": chance.choice(("mute", "deaf", "lose")), "ms": _ms(chance)}
        case "sync":
            return {"ms": _ms(chance), "slow_ms": chance.choice((30, 200, 1_200))}
        case "fail_sync":
            return {"count": 1, "down_ms": _down_ms(chance)}
        case "clock":
            return {"jump_ms": chance.choice((-3_600_000, -5_000, 5_000, 3_600_000))}
    raise AssertionError(kind)


# Kind -> (how often, who may be hit).
_ANY, _CONTROLLERS = "any", "controllers"
KINDS: dict[str, tuple[float, str]] = {
    "kill": (4, _ANY),
    "power": (4, _ANY),
    "ops": (5, _ANY),
    "restart": (2, _ANY),
    "roll": (0.4, _ANY),
    "pause": (3, _ANY),
    "cut": (4, _ANY),
    "isolate": (3, _ANY),
    "slow": (2, _ANY),
    "stall": (2, _ANY),
    "lose": (2, _ANY),
    "clients": (3, _ANY),
    "sync": (3, _ANY),
    "full": (1, _ANY),
    "fail_sync": (1, _ANY),
    "flip": (1, _CONTROLLERS),
    "clock": (1, _ANY),
    "member": (1.5, _CONTROLLERS),
}


def _target(kind: str, chance: random.Random, cast: Cast) -> Target:
    """A good part of the faults hits leaders, where they matter most."""
    dice = chance.random()
    if dice < 0.3:
        return ACTIVE
    if KINDS[kind][1] == _CONTROLLERS:
        return chance.choice(cast.controllers)
    if dice < 0.5:
        return LEADER
    return chance.choice(cast.everyone)


def _one(chance: random.Random, cast: Cast, at_ms: int, kinds: Sequence[str]) -> Fault:
    kind = chance.choices(kinds, [KINDS[kind][0] for kind in kinds])[0]
    target = _target(kind, chance, cast)
    return Fault(at_ms, kind, target, _args(kind, chance, cast, target))


# -- combinations ------------------------------------------------------------------------------


def _anyone(cast: Cast, *roles: Target) -> list[Target]:
    return [*roles, *cast.everyone]


def _kill_then_power(chance: random.Random, cast: Cast, at_ms: int) -> Plan:
    """What a recovered log holds unsynced after a kill, lost by a power cut soon after."""
    node = chance.choice(cast.everyone)
    down_ms = chance.randint(20, 300)
    kill_ms = at_ms + chance.randint(50, 900)
    again_ms = kill_ms + down_ms + chance.randint(50, 900)
    return [
        Fault(at_ms, "sync", node, {"ms": 1_000, "slow_ms": chance.choice((200, 1_200))}),
        Fault(kill_ms, "kill", node, {"down_ms": down_ms}),
        Fault(again_ms, "power", node, {"down_ms": _down_ms(chance)}),
    ]


def _ops_in_recovery(chance: random.Random, cast: Cast, at_ms: int) -> Plan:
    """Dies again and again in the first operations of a start."""
    node = chance.choice(_anyone(cast, ACTIVE))
    plan = [Fault(at_ms, "power", node, {"down_ms": 150})]
    for turn in range(chance.randint(2, 4)):
        args = {"count": chance.randint(1, 40), "power": chance.random() < 0.5, "down_ms": 150}
        plan.append(Fault(at_ms + 140 + 200 * turn, "ops", node, args))
    return plan


def _slow_sync_then_power(chance: random.Random, cast: Cast, at_ms: int) -> Plan:
    node = chance.choice(_anyone(cast, ACTIVE, LEADER))
    return [
        Fault(at_ms, "sync", node, {"ms": 2_000, "slow_ms": chance.choice((200, 1_200))}),
        Fault(at_ms + chance.randint(20, 1_500), "power", node, {"down_ms": _down_ms(chance)}),
    ]


def _all_controllers(chance: random.Random, cast: Cast, at_ms: int) -> Plan:
    kind = chance.choice(("power", "kill"))
    return [
        Fault(at_ms + chance.randint(0, 30), kind, node, {"down_ms": chance.randint(50, 1_500)})
        for node in cast.controllers
    ]


def _deposed(chance: random.Random, cast: Cast, at_ms: int) -> Plan:
    """A leader that does not know it is one no more comes back among the others."""
    kind = chance.choice(("isolate", "pause"))
    ms = chance.randint(1_000, 6_000)
    args: dict[str, Any] = {"ms": ms} if kind == "pause" else {"ms": ms, "both": True}
    after_ms = at_ms + ms + chance.randint(-200, 300)
    return [
        Fault(at_ms, kind, ACTIVE, args),
        Fault(after_ms, "kill", ACTIVE, {"down_ms": _down_ms(chance)}),
    ]


def _leaders_in_turn(chance: random.Random, cast: Cast, at_ms: int) -> Plan:
    """Whoever leads is killed, and who follows it, before the first is back in sync."""
    target = chance.choice((ACTIVE, LEADER))
    gaps = [chance.randint(50, 1_500) for _ in range(chance.randint(2, 4))]
    return [
        Fault(at_ms + sum(gaps[:i]), "kill", target, {"down_ms": chance.randint(100, 2_500)})
        for i in range(len(gaps))
    ]


def _full_and_cut(chance: random.Random, cast: Cast, at_ms: int) -> Plan:
    node = chance.choice(cast.everyone)
    return [
        Fault(at_ms, "full", node, {"ms": 3_000}),
        Fault(at_ms + chance.randint(50, 2_000), "lose", node, {"to": _other(chance, cast, node)}),
        Fault(at_ms + chance.randint(50, 3_500), "kill", node, {"down_ms": _down_ms(chance)}),
    ]


_COMBINATIONS: tuple[Callable[[random.Random, Cast, int], Plan], ...] = (
    _kill_then_power,
    _ops_in_recovery,
    _slow_sync_then_power,
    _all_controllers,
    _deposed,
    _leaders_in_turn,
    _full_and_cut,
)


def _beyond(cast: Cast) -> tuple[str, ...]:
    """Kinds that are outside the budget of so small a cluster, or have no place in it."""
    kinds: tuple[str, ...] = ()
    if len(cast.everyone) == 1:
        kinds += ("cut", "isolate", "slow", "stall", "lose")
    if len(cast.controllers) < 3:
        kinds += ("flip", "member")
    return kinds


def draw(seed: int, cast: Cast, *, start_ms: int, end_ms: int, without: Sequence[str] = ()) -> Plan:
    """A seed's plan: at least 52 faults from `start_ms` to `end_ms`, in order of time.

    `without` are kinds that the cluster at hand can't take.
    """
    chance = random.Random(f"{seed}/plan")
    without = (*without, *_beyond(cast))
    possible = [kind for kind in KINDS if kind not in without]
    kinds = [kind for kind in possible if chance.random() < 0.45]
    kinds += [kind for kind in ("kill", "power", "cut") if not kinds and kind in possible]
    plan: Plan = []
    count = chance.choice((52, 60, 72))
    for _ in range(chance.randint(1, 6)):
        combination = chance.choice(_COMBINATIONS)
        made = combination(chance, cast, chance.randint(start_ms, end_ms))
        plan += [fault for fault in made if fault.kind not in without]
    at_ms = start_ms
    while len(plan) < count:
        # Bursts: half of the faults come right after another one.
        if plan and chance.random() < 0.5:
            at_ms += chance.randint(0, 400)
        else:
            at_ms = chance.randint(start_ms, end_ms)
        if at_ms < end_ms:
            plan.append(_one(chance, cast, at_ms, kinds))
    plan = [fault for fault in plan if fault.at_ms < end_ms]
    while len(plan) < count:
        plan.append(_one(chance, cast, chance.randint(start_ms, end_ms - 1), kinds))
    return sorted(plan, key=lambda fault: fault.at_ms)
