"""Atomic operations under way: made slice by slice, beside an image that others go on changing.

What is made goes into an image of its own, and so does what others append meanwhile. In the log it
comes after theirs; the order makes no difference, since nobody else can say anything of a topic or
a partition that isn't there yet. Where it could make one, because brokers, features or existing
topics have changed, the operation is made anew.
"""

from __future__ import annotations

from typing import Any

from controller.context import AtomicOperation, Context, Making
from controller.events import ApiRequest
from controller.record_versions import encode_record
from metadata.image import MetadataImage
from metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

# Records that may change what has been decided already.
_GROUND = (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
# Made in one piece when it has been begun so many times: brokers that come and go all the time
# must not keep it from ever ending.
_ATTEMPTS = 3


class AtomicUnderWay:
    """One such operation, and who asked for it. When `ended`, `values` and the `image` that holds
    them stand on the context's image of that moment, and `reply` is there."""

    def __init__(
        self, context: Context, operation: AtomicOperation, request: ApiRequest, *, admin: bool
    ) -> None:
        self.request = request
        self.admin = admin
        self.image: MetadataImage = context.image
        self.values: list[bytes] = []
        self.ended = False
        self.reply: Any = None
        self._context = context
        self._operation = operation
        self._making: Making | None = None
        self._attempts = 0

    def follow(self, record: Record) -> None:
        """Somebody else's record has been applied to the context's image."""
        if isinstance(record, _GROUND):
            self.give_up_attempt()
        elif self._making is not None:
            self.image = self.image.apply(record)

    def give_up_attempt(self) -> None:
        """What has been made so far may not hold any more."""
        self._making = None

    def take(self, limit: int) -> int:
        """Takes at most `limit` steps, more only where it has to be one piece; how many it took.

        Raises what the steps raise.
        """
        making = self._making
        if making is None:
            making = self._making = self._operation.make()
            self.image, self.values = self._context.image, []
            self._attempts += 1
        in_one_piece = self._attempts > _ATTEMPTS
        level, image, values = self._context.metadata_version, self.image, self.values
        taken = 0
        while taken < limit or in_one_piece:
            try:
                record = next(making)
            except StopIteration as end:
                self.ended, self.reply = True, end.value
                break
            taken += 1
            if record is not None and not self._operation.validate_only:
                values.append(encode_record(record, level))
                image = image.apply(record)
        self.image = image
        return taken
