"""Admin calls on topics, each topic name judged by itself as one register.

Calls (see simulation.clients.admin for who makes them):

    create(name)         result: the topic's id where the answer tells it
    delete(name)
    alter(name, value)   sets the one config that the clients play with
    read(name)           result: (id, value), or None where there is no such topic

A FAILED call carries in `result` what it says of the topic: "exists" or "absent". With the argument
`newest` the controller that said so had not been replaced, and it must have been so during the
call. Without, that is only held against the past: a controller that was replaced and does not know
it yet may say so, as Kafka's does. Calls through a broker may reach the controllers more than once,
because a broker repeats what got no answer: a copy of them may take effect at any time after, and
their refusals may be caused by a copy of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from simulation.checks import Violation
from simulation.history import Call, History, Outcome
from simulation.models.linear import Operation, Undecided, linearizable

KINDS = ("create", "delete", "alter", "read")
EXISTS, ABSENT = "exists", "absent"
RULE = "admin calls are linearizable"


class Topic(NamedTuple):
    """A topic that is there. `id` None: of a creation that never told it."""

    id: str | None = None
    value: str | None = None


Register = Topic | None
Step = Callable[[Register], Iterable[Register]]


def _create(topic_id: str | None) -> Step:
    return lambda state: (Topic(topic_id),) if state is None else ()


def _delete(state: Register) -> Iterable[Register]:
    return () if state is None else (None,)


def _alter(value: str) -> Step:
    return lambda state: () if state is None else (state._replace(value=value),)


def _read(seen: Topic | None) -> Step:
    def step(state: Register) -> Iterable[Register]:
        if seen is None or state is None:
            return (state,) if state == seen else ()
        if state.value != seen.value or state.id not in (None, seen.id):
            return ()
        return (seen,)

    return step


def _said(word: str) -> Step:
    return lambda state: (state,) if (state is not None) == (word == EXISTS) else ()


def _effect(call: Call) -> Step:
    if call.kind == "create":
        return _create(call.result if call.outcome is Outcome.OK else None)
    if call.kind == "delete":
        return _delete
    return _alter(call.args["value"])


def operations_of(call: Call) -> list[Operation[Register]]:
    """What a call stands for in its topic's register."""
    text = str(call)
    if call.kind == "read":
        if call.outcome is not Outcome.OK:
            return []
        seen = None if call.result is None else Topic(*call.result)
        return [Operation(call.invoked, call.returned, _read(seen), text)]
    forwarded = bool(call.args.get("forwarded"))
    found: list[Operation[Register]] = []
    if call.outcome is Outcome.OK:
        found.append(Operation(call.invoked, call.returned, _effect(call), text))
    elif call.outcome is Outcome.FAILED and call.result in (EXISTS, ABSENT) and not forwarded:
        since = call.invoked if call.args.get("newest") else 0
        found.append(Operation(since, call.returned, _said(call.result), text))
    # A broker asks again where an answer is lost, so that there may be another copy, and one of a
    # create that makes a topic with another id.
    for _ in range((call.outcome is Outcome.UNKNOWN) + forwarded):
        again = _create(None) if call.kind == "create" else _effect(call)
        found.append(Operation(call.invoked, None, again, f"{text} (maybe)"))
    return found


def judge(history: History) -> None:
    """Violation if some topic's calls can't be explained; Undecided if that can't be told."""
    by_name: dict[str, list[Call]] = {}
    for call in history.calls:
        if call.kind in KINDS:
            by_name.setdefault(call.args["name"], []).append(call)
    for name, calls in by_name.items():
        operations = [operation for call in calls for operation in operations_of(call)]
        lines = "\n".join(f"  {call}" for call in calls)
        try:
            holds = linearizable(operations, None)
        except Undecided as error:
            raise Undecided(f"topic {name}: {error}\n{lines}") from error
        if not holds:
            raise Violation(RULE, f"topic {name}:\n{lines}")
