"""IncrementalAlterConfigs requests, versions 0 and 1, and the answer that AlterConfigs shares."""

from __future__ import annotations

from typing import Any, NamedTuple

from wire.apis import is_flexible
from wire.errors import DecodeError
from wire.hot import primitives as p
from wire.reader import MAX_ELEMENTS, Allowance

_NO_THROTTLE = p.INT32.pack(0)


class ConfigChange(NamedTuple):
    """What is to happen to one config; the operations are Kafka's numbers."""

    name: str
    config_operation: int
    value: str | None


class ResourceChange(NamedTuple):
    """The changes of one resource."""

    resource_type: int
    resource_name: str
    configs: tuple[ConfigChange, ...]


class ConfigsRequest(NamedTuple):
    """A whole request."""

    resources: tuple[ResourceChange, ...]
    validate_only: bool


class ResourceOutcome(NamedTuple):
    """What came of one resource; error code 0 and no message where all is well."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class ConfigsResponse(NamedTuple):
    """The answer to IncrementalAlterConfigs and to AlterConfigs, never throttled."""

    responses: tuple[ResourceOutcome, ...]

    def encode_body(self, api_key: int, version: int) -> bytes:
        """The body, without size and header."""
        flexible = is_flexible(api_key, version)
        tags = b"\x00" if flexible else b""
        out = bytearray(_NO_THROTTLE)
        out += p.count(len(self.responses), flexible)
        for code, message, kind, name in self.responses:
            out += p.INT16.pack(code)
            out += p.string(message, flexible)
            out += p.INT8.pack(kind)
            out += p.string(name, flexible)
            out += tags
        out += tags
        return bytes(out)


@p.decoding
def decode_incremental_alter_configs(
    version: int, body: Any, max_elements: int = MAX_ELEMENTS
) -> ConfigsRequest:
    """The request in a body, whatever comes behind it. DecodeError where it is malformed, or holds
    more than `max_elements` array elements and tagged fields."""
    allowance = Allowance(max_elements)
    flexible = version >= 1
    if len(body) < 1024:
        body = bytes(body)  # values are cut out of bytes in half the time
    count, pos = p.read_count(body, 0, flexible, allowance)
    resources = []
    for _ in range(count):
        resource, pos = _read_resource(body, pos, flexible, allowance)
        resources.append(resource)
    validate_only = body[pos] != 0
    if flexible:
        p.skip_tags(body, pos + 1, allowance)
    return ConfigsRequest(tuple(resources), validate_only)


def _read_resource(
    body: Any, pos: int, flexible: bool, allowance: Allowance
) -> tuple[ResourceChange, int]:
    (kind,) = p.INT8.unpack_from(body, pos)
    name, pos = p.read_string(body, pos + 1, flexible)
    count, pos = p.read_count(body, pos, flexible, allowance)
    configs = []
    for _ in range(count):
        config, pos = p.read_string(body, pos, flexible)
        (operation,) = p.INT8.unpack_from(body, pos)
        value, pos = p.read_string(body, pos + 1, flexible)
        if flexible:
            pos = p.skip_tags(body, pos, allowance)
        if config is None:
            raise DecodeError(f"byte {pos}: a config without a name")
        configs.append(ConfigChange(config, operation, value))
    if name is None:
        raise DecodeError(f"byte {pos}: a resource without a name")
    if flexible:
        pos = p.skip_tags(body, pos, allowance)
    return ResourceChange(kind, name, tuple(configs)), pos
