"""Who a member is: what the requests of both protocols ask alike."""

from __future__ import annotations

from broker.groups.consumer.member import JOINING_EPOCH, Member
from broker.groups.consumer.records import (
    remove_member,
    write_current,
    write_subscription,
    write_target,
)
from broker.groups.consumer.refusal import Refused
from broker.groups.consumer.replay import Draft
from wire.errors import ErrorCode


def unknown_member(member_id: str) -> Refused:
    """The refusal of somebody who is no member."""
    return Refused(ErrorCode.unknown_member_id, f"the group has no member {member_id}")


def known_static(holder: Member | None, instance_id: str, member_id: str) -> Member:
    """The member that has an instance id, if it is `member_id`."""
    if holder is None:
        message = f"the group has no member of instance id {instance_id}"
        raise Refused(ErrorCode.unknown_member_id, message)
    if holder.member_id != member_id:
        raise Refused(
            ErrorCode.fenced_instance_id,
            f"member {holder.member_id} has instance id {instance_id} now",
        )
    return holder


def replace_static(draft: Draft, old: Member, member_id: str) -> Member:
    """A static member is back, usually with a new id: what the old one had is its own."""
    target = draft.group.target_of(old.member_id)
    new = old.but(member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    remove_member(draft, old.member_id)
    write_subscription(draft, new)
    write_target(draft, member_id, target)
    write_current(draft, new)
    return new
