"""UpdateFeatures 0-2 (KIP-584, KIP-778): finalised levels go up or down, all of them or none.

A level must lie in the range of this code, of every registered broker and, where controllers
register, of every controller. metadata.version goes down only where that loses no metadata; an
unsafe downgrade, which would, is refused as in Kafka. kraft.version is the quorum's to raise, once
all else was found to be in order; the records of the others follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller import eligible_replicas
from controller.api import ControllerApi, answer, bad_request, duplicates, part
from controller.context import Context, Result
from controller.events import ApiRequest, UpgradeKraftVersion
from metadata.features import (
    CONTROLLER_REGISTRATION,
    SUPPORTED,
    describe_level,
    lowest_without_loss,
    unmet,
)
from metadata.image import METADATA_VERSION
from metadata.records import FeatureLevelRecord, Record
from raft.peers import KRAFT_VERSION
from raft.voters import MAX_KRAFT_VERSION
from wire.apis import ApiKey
from wire.errors import ErrorCode, KafkaError

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_KINDS = (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE)
_NOTHING = (0, 0)


@dataclass(frozen=True, slots=True)
class _Update:
    name: str
    level: int
    kind: int

    def invalid(self, reason: str) -> KafkaError:
        asked = f"{self.name} can't be set to {describe_level(self.name, self.level)}"
        return KafkaError(ErrorCode.invalid_update_version, f"{asked}: {reason}")


def _handle(context: Context, request: ApiRequest) -> Result:
    updates = [_update(asked) for asked in request.entity.feature_updates]
    twice = duplicates(update.name for update in updates)
    if twice:
        raise bad_request(f"feature {twice[0]} is named more than once")
    _check_names(updates)
    levels = {METADATA_VERSION: context.metadata_version, **context.image.features}
    levels |= {update.name: update.level for update in updates}
    changes = [update for update in updates if _is_change(context, update, levels)]
    records: list[Record] = [
        FeatureLevelRecord(name=update.name, feature_level=update.level)
        for update in changes
        if update.name != KRAFT_VERSION
    ]
    if eligible_replicas.turned_on(records):
        records = eligible_replicas.one_min_isr(context.image, context.config.static) + records
    # Since version 2 there is one outcome for all; version 0 always means it.
    results = [_done(request, update) for update in updates] if request.api_version < 2 else []
    reply = answer(request, error_code=ErrorCode.none, error_message=None, results=tuple(results))
    validate_only = getattr(request.entity, "validate_only", False)
    for update in changes:
        if update.name == KRAFT_VERSION:
            upgrade = UpgradeKraftVersion(request.token, update.level, validate_only)
            return Result([], reply, upgrade)
    return Result([] if validate_only else records, reply)


def _done(request: ApiRequest, update: _Update) -> Any:
    return part(
        request,
        "UpdatableFeatureResult",
        feature=update.name,
        error_code=ErrorCode.none,
        error_message=None,
    )


def _update(asked: Any) -> _Update:
    # Version 0 knows one kind of downgrade, the safe one.
    kind = getattr(asked, "upgrade_type", None)
    if kind is None:
        kind = _SAFE_DOWNGRADE if asked.allow_downgrade else _UPGRADE
    return _Update(asked.feature, int(asked.max_version_level), int(kind))


def _check_names(updates: Sequence[_Update]) -> None:
    """KafkaError where features are asked for that aren't here: it names all of them, as Kafka's
    tool asks for a whole release at once, and the levels that there are."""
    ranges = _own_ranges()
    lacking = [update for update in updates if update.name not in ranges]
    if lacking:
        there = (
            f"{name} {describe_level(name, low)} to {describe_level(name, high)}"
            for name, (low, high) in sorted(ranges.items())
        )
        raise lacking[0].invalid(
            f"this version has no {', '.join(update.name for update in lacking)}; "
            f"the features there are: {', '.join(there)}"
        )


def _is_change(context: Context, update: _Update, levels: Mapping[str, int]) -> bool:
    """Whether the update changes something; KafkaError where it is not allowed. `levels` are
    those of all features once every update of the request is made."""
    if update.kind not in _KINDS:
        raise update.invalid(
            f"upgrade type {update.kind} is none of 1 (upgrade), 2 (safe downgrade), "
            "3 (unsafe downgrade)"
        )
    _check_ranges(context, update)
    now = _level_now(context, update.name)
    present = f"it is at {describe_level(update.name, now)}"
    if update.level < now and update.name == KRAFT_VERSION:
        raise update.invalid(f"{present} and never goes down")
    if update.level < now and update.kind == _UPGRADE:
        raise update.invalid(f"{present}: that takes a safe or unsafe downgrade, not an upgrade")
    if update.level > now and update.kind != _UPGRADE:
        raise update.invalid(f"{present}: that takes an upgrade, not a downgrade")
    if update.name == METADATA_VERSION and update.level < now:
        _check_nothing_lost(update, now)
    needed = unmet(update.name, update.level, levels)
    if needed is not None:
        name, level = needed
        raise update.invalid(
            f"that needs {name} at {describe_level(name, level)} or higher, "
            f"not {describe_level(name, levels.get(name, 0))}"
        )
    return update.level != now


def _own_ranges() -> dict[str, tuple[int, int]]:
    return {**SUPPORTED, KRAFT_VERSION: (0, MAX_KRAFT_VERSION)}


def _level_now(context: Context, name: str) -> int:
    if name == METADATA_VERSION:
        return context.metadata_version
    if name == KRAFT_VERSION:
        return context.image.kraft_version or 0
    return context.image.features.get(name, 0)


def _check_nothing_lost(update: _Update, now: int) -> None:
    lowest = lowest_without_loss(now)
    if update.level >= lowest:
        return
    reason = (
        "unsafe downgrades are not supported"
        if update.kind == _UNSAFE_DOWNGRADE
        else "the downgrade might lose metadata"
    )
    raise update.invalid(
        f"{reason}; from {describe_level(METADATA_VERSION, now)} it can go down to "
        f"{describe_level(METADATA_VERSION, lowest)}"
    )


def _check_ranges(context: Context, update: _Update) -> None:
    for node, (low, high) in _ranges(context, update.name):
        if low <= update.level <= high:
            continue
        if (low, high) == _NOTHING:
            raise update.invalid(f"{node} does not support this feature")
        raise update.invalid(
            f"{node} supports levels {describe_level(update.name, low)} to "
            f"{describe_level(update.name, high)}"
        )
    if context.metadata_version < CONTROLLER_REGISTRATION:
        return
    for controller in context.config.static_voters:
        known = controller == context.config.node_id or controller in context.image.controllers
        if not known:
            raise update.invalid(
                f"controller {controller} has not registered yet, so what it supports is not known"
            )


def _ranges(context: Context, name: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Who has a say, and the levels that it supports."""
    image, own = context.image, context.config.node_id
    yield f"controller {own}", _own_ranges()[name]
    for _, broker in sorted(image.brokers.items()):
        yield f"broker {broker.id}", broker.supported(name) or _NOTHING
    # Registrations of a log that goes back below their level count no more.
    if context.metadata_version >= CONTROLLER_REGISTRATION:
        for _, controller in sorted(image.controllers.items()):
            if controller.id != own:
                yield f"controller {controller.id}", controller.supported(name) or _NOTHING


def _refuse(request: ApiRequest, code: ErrorCode, message: str) -> Any:
    return answer(request, error_code=code, error_message=message, results=())


API = ControllerApi(ApiKey.UPDATE_FEATURES, 0, 2, _handle, _refuse)
