"""Subscriptions by regular expression: resolved by the coordinator, once for all members.

An expression is resolved when it is new, when topics have come, and now and then; never twice
within RESOLVED_AGAIN_MS. That takes place between requests, some topics at a time; then the group's
epoch rises if it stands for other topics than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from broker.groups.consumer.group import ConsumerGroup, Resolved
from broker.groups.consumer.records import write_regex
from broker.groups.consumer.refusal import Refused
from broker.groups.consumer.replay import Draft
from broker.groups.consumer.topics import Topics
from broker.groups.context import Context
from broker.groups.timers import Timer
from wire.errors import ErrorCode

Matches = Callable[[str], object]
"""Whether the whole of a text matches."""
CompileRegex = Callable[[str], Matches]
"""ValueError, with the reason, for what is no expression."""

RESOLVED_AGAIN_MS: Final = 10_000
_TOPICS_AT_ONCE: Final = 2_000


class _Job:
    """Expressions of one group on their way through all topics."""

    __slots__ = ("found", "matchers", "names", "timer", "timestamp", "version")

    def __init__(
        self,
        matchers: dict[str, Matches],
        names: Iterator[str],
        version: int,
        timestamp: int,
        timer: Timer,
    ) -> None:
        self.matchers = matchers
        self.names = names
        self.version = version
        self.timestamp = timestamp
        self.timer = timer
        self.found: dict[str, list[str]] = {regex: [] for regex in matchers}

    def step(self) -> bool:
        """Looks at some more topics; whether there may be more."""
        names = list(islice(self.names, _TOPICS_AT_ONCE))
        for regex, matches in self.matchers.items():
            self.found[regex] += [name for name in names if matches(name)]
        return len(names) == _TOPICS_AT_ONCE

    def resolved(self, regex: str) -> Resolved:
        return Resolved(tuple(sorted(self.found[regex])), self.version, self.timestamp)


class Expressions:
    """The jobs of all groups. `finish` is called with a draft in which a group's expressions have
    been written, and whether one of them stands for other topics now."""

    def __init__(
        self,
        context: Context,
        topics: Topics,
        compile_regex: CompileRegex,
        finish: Callable[[Draft, bool], None],
    ) -> None:
        self._context = context
        self._topics = topics
        self._compile = compile_regex
        self._finish = finish
        self._jobs: dict[str, _Job] = {}

    def check(self, regex: str) -> None:
        """Refuses what is no regular expression."""
        try:
            self._compile(regex)
        except ValueError as error:
            raise Refused(
                ErrorCode.invalid_regular_expression,
                f"{regex!r} is no regular expression: {error}",
            ) from None

    def refresh(self, group: ConsumerGroup) -> None:
        """Have the group's expressions resolved if it is time to."""
        if not group.regexes or group.group_id in self._jobs:
            return
        wall_ms, resolved = self._context.wall_ms, group.resolved.values()
        last = min((one.timestamp for one in resolved), default=None)
        if last is None or self._is_due(group, last, wall_ms):
            self._begin(group, wall_ms)

    def _is_due(self, group: ConsumerGroup, last: int, wall_ms: int) -> bool:
        # A clock that went back is no reason to wait.
        if last <= wall_ms <= last + RESOLVED_AGAIN_MS:
            return False
        interval = self._context.settings.group_consumer_regex_refresh_interval_ms
        return (
            any(regex not in group.resolved for regex in group.regexes)
            or min(one.version for one in group.resolved.values()) < self._topics.version_of_new
            or not last <= wall_ms <= last + interval
        )

    def _begin(self, group: ConsumerGroup, wall_ms: int) -> None:
        group_id, topics = group.group_id, self._topics
        matchers: dict[str, Matches] = {}
        for regex in sorted(group.regexes):
            try:
                matchers[regex] = self._compile(regex)
            except ValueError as error:
                # Another broker took it. It stands for nothing here.
                self._context.log(
                    "group_regex_ignored", group=group_id, regex=regex, reason=str(error)
                )
                matchers[regex] = _matches_nothing
        timer = Timer(lambda: self._step(group_id))
        job = _Job(matchers, iter(topics.by_name), topics.version, wall_ms, timer)
        self._jobs[group_id] = job
        self._context.timers.set(timer, self._context.now_ms)

    def _step(self, group_id: str) -> None:
        job = self._jobs[group_id]
        if job.step():
            self._context.timers.set(job.timer, self._context.now_ms + 1)
            return
        del self._jobs[group_id]
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        draft = Draft(group_id, group)
        changed = False
        for regex in sorted(job.matchers):
            if regex not in group.regexes:
                continue  # taken back meanwhile
            before, after = group.resolved.get(regex), job.resolved(regex)
            changed |= (before.topics if before is not None else ()) != after.topics
            write_regex(draft, regex, after)
        self._finish(draft, changed)


def _matches_nothing(_: str) -> bool:
    return False
