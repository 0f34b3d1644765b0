"""ApiVersions: what a listener says about itself, made from its table of handlers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from struct import Struct
from typing import Any

from net.handlers import API_VERSIONS_KEY, API_VERSIONS_MAX, HandlerTable, decode_tolerant
from wire.errors import ErrorCode
from wire.messages import (
    RequestHeader,
    encode_response,
    fill,
    response_class,
    response_module,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_HEAD = Struct(">ii")
_DROPS_ZERO_MINIMUM = 3
"""Up to this version a feature whose minimum is 0 is left out: older Java clients refuse it."""


@dataclass(frozen=True, slots=True)
class FeatureView:
    """The features of this node and of the cluster.

    `finalized_epoch` is the metadata offset that the finalized levels belong to, -1 while unknown.
    """

    supported: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    finalized: Mapping[str, int] = field(default_factory=dict)
    finalized_epoch: int = -1


NO_FEATURES = FeatureView()
_MAX_ELEMENTS = 100  # two strings; whatever else a newer client may add comes in tagged fields


class ApiVersionsAnswers:
    """Answers ApiVersions for one listener; bodies are cached until the features change."""

    __slots__ = ("_bodies", "_features", "_table")

    def __init__(self, table: HandlerTable, features: Callable[[], FeatureView]) -> None:
        self._table = table
        self._features = features
        self._bodies: dict[int, tuple[FeatureView, bytes]] = {}

    def answer(
        self, header: RequestHeader, frame: memoryview, offset: int
    ) -> tuple[bytes, tuple[str, str] | None]:
        """The response frame, and the client's software name and version where it says them.

        A version above ours is answered in the form of version 0 with error 35 and our range for
        ApiVersions alone (KIP-511); the body is then not looked at. Raises DecodeError for a body
        that is none.
        """
        version = header.api_version
        if not 0 <= version <= API_VERSIONS_MAX:
            return self._error(header, 0, ErrorCode.unsupported_version), None
        request = decode_tolerant(header, frame, offset, _MAX_ELEMENTS)
        software = None
        if version >= 3:
            software = (request.client_software_name, request.client_software_version)
            if not all(_SOFTWARE.fullmatch(text) for text in software):
                return self._error(header, version, ErrorCode.invalid_request), None
        view = self._features()
        cached = self._bodies.get(version)
        if cached is None or cached[0] != view:
            cached = (view, self._encode(version, view))
            self._bodies[version] = cached
        body = cached[1]
        return _HEAD.pack(4 + len(body), header.correlation_id) + body, software

    def _encode(self, version: int, view: FeatureView) -> bytes:
        """The body alone, without size and header."""
        module = response_module(API_VERSIONS_KEY, version)
        keys = tuple(
            fill(module.ApiVersion, api_key=key, min_version=low, max_version=high)
            for key, low, high in self._table.versions()
        )
        extra: dict[str, Any] = {}
        if version >= 3:
            extra["supported_features"] = tuple(
                fill(module.SupportedFeatureKey, name=name, min_version=low, max_version=high)
                for name, (low, high) in sorted(view.supported.items())
                if low > 0 or version > _DROPS_ZERO_MINIMUM
            )
            if view.finalized_epoch >= 0:
                extra["finalized_features_epoch"] = view.finalized_epoch
                extra["finalized_features"] = tuple(
                    fill(
                        module.FinalizedFeatureKey,
                        name=name,
                        max_version_level=level,
                        min_version_level=level,
                    )
                    for name, level in sorted(view.finalized.items())
                )
        entity = _response(version, ErrorCode.none, keys, extra)
        return encode_response(API_VERSIONS_KEY, version, 0, entity)[8:]

    def _error(self, header: RequestHeader, version: int, code: ErrorCode) -> bytes:
        module = response_module(API_VERSIONS_KEY, version)
        own: tuple[Any, ...] = ()
        if code == ErrorCode.unsupported_version:
            own = (
                fill(
                    module.ApiVersion,
                    api_key=API_VERSIONS_KEY,
                    min_version=0,
                    max_version=API_VERSIONS_MAX,
                ),
            )
        entity = _response(version, code, own, {})
        return encode_response(API_VERSIONS_KEY, version, header.correlation_id, entity)


def _response(version: int, code: ErrorCode, keys: tuple[Any, ...], extra: dict[str, Any]) -> Any:
    """A response entity of any version; nothing here throttles."""
    return fill(
        response_class(API_VERSIONS_KEY, version),
        error_code=code,
        api_keys=keys,
        throttle_time=timedelta(0),
        **extra,
    )
