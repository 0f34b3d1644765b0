"""What the API files have in common: how one is declared and how it builds answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from controller.context import AtomicOperation, Context, Operation, Result
from controller.events import ApiRequest
from wire.errors import ErrorCode, KafkaError
from wire.messages import fill, response_class, response_module
from wire.reader import MAX_ELEMENTS

NO_THROTTLE = timedelta(0)


@dataclass(frozen=True, slots=True)
class ControllerApi:
    """One Kafka API of the controller listener.

    `handle` checks a request and answers with the records, or the steps towards them, and the
    reply to give once they are committed; a KafkaError it raises is turned into a reply by
    `refuse`, which answers the whole request with one error. `admin` requests may be refused under
    load; brokers' own may not. `forwardable` ones may come in an Envelope. `max_elements` is how
    many array elements and tagged fields a request may hold, in an Envelope or not.
    """

    key: int
    min_version: int
    max_version: int
    handle: Callable[[Context, ApiRequest], Result | Operation | AtomicOperation]
    refuse: Callable[[ApiRequest, ErrorCode, str], Any]
    admin: bool = True
    forwardable: bool = True
    max_elements: int = MAX_ELEMENTS


def answer(request: ApiRequest, **fields: Any) -> Any:
    """The response entity in the request's version; fields that it lacks are left out."""
    fields.setdefault("throttle_time", NO_THROTTLE)
    return fill(response_class(request.api_key, request.api_version), **fields)


def part(request: ApiRequest, kind: str, /, **fields: Any) -> Any:
    """A nested entity of that response, by the name of its class."""
    return fill(getattr(response_module(request.api_key, request.api_version), kind), **fields)


def timeout_ms(entity: Any) -> int:
    """The entity's timeout in milliseconds."""
    timeout: timedelta = entity.timeout
    return int(timeout / timedelta(milliseconds=1))


def duplicates(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, in order of first occurrence."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [name for name, count in counts.items() if count > 1]


def bad_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
