"""Is a history of concurrent calls one that an object without concurrency could have had?

The search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory
of configurations tried ("Testing for linearizability", 2017). It is exact but may take long:
it has a limit of configurations, and running into it is an error, never a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)

CONFIGURATIONS_MAX = 200_000


class Undecided(AssertionError):
    """The search ran into its limit: nothing is known of this history."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[State]):
    """One call on the object. It takes effect at one place between `invoked` and `returned`;
    with `returned` None it may take effect at any time after `invoked`, or never.

    `step(state)` is every state that it may leave behind; none where it can't have had this
    outcome in that state.
    """

    invoked: int
    returned: int | None
    step: Callable[[State], Iterable[State]]
    text: str = ""


def linearizable(
    operations: Sequence[Operation[State]],
    initial: State,
    *,
    configurations_max: int = CONFIGURATIONS_MAX,
) -> bool:
    """Whether some order of the operations, true to their times, explains every outcome.

    Raises Undecided after `configurations_max` configurations.
    """
    ordered = sorted(operations, key=lambda operation: operation.invoked)
    required = 0
    for index, operation in enumerate(ordered):
        if operation.returned is not None:
            required |= 1 << index
    first = (0, initial)
    seen = {first}
    stack = [first]
    while stack:
        done, state = stack.pop()
        if done & required == required:
            return True
        for index in _candidates(ordered, done):
            for after in ordered[index].step(state):
                if after == state and ordered[index].returned is None:
                    continue  # as well never
                following = (done | 1 << index, after)
                if following not in seen:
                    if len(seen) >= configurations_max:
                        raise Undecided(f"over {configurations_max} configurations")
                    seen.add(following)
                    stack.append(following)
    return False


def _candidates(ordered: Sequence[Operation[State]], done: int) -> list[int]:
    """Which operations may come next: those that began before any other must have ended.

    The ones that must come are tried first (the stack gives back the last)."""
    first_return: int | None = None
    maybe: list[int] = []
    must: list[int] = []
    for index, operation in enumerate(ordered):
        if first_return is not None and operation.invoked > first_return:
            break
        if done >> index & 1:
            continue
        if operation.returned is None:
            maybe.append(index)
            continue
        must.append(index)
        if first_return is None or operation.returned < first_return:
            first_return = operation.returned
    # Those in the list that began after the first return (found later in the row) don't count.
    return [i for i in (*maybe, *reversed(must)) if _may_begin(ordered[i], first_return)]


def _may_begin(operation: Operation[State], first_return: int | None) -> bool:
    return first_return is None or operation.invoked < first_return
