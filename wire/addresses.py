"""Addresses as people write them: `host:port`, or `[v6 address]:port`."""

from __future__ import annotations

import re

from wire.numbers import whole_number

MOST_HOST = 255  # RFC 1035 §2.3.4
# An IPv6 address, or labels of up to 63 characters; `_` is no letter of a host name, but in use.
_HOST = re.compile(
    r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[\w.-]+)?|[\w-]{1,63}(\.[\w-]{1,63})*\.?", re.ASCII
)


def is_host(text: str) -> bool:
    """Whether it is an address, or could be a host name."""
    return len(text) <= MOST_HOST and _HOST.fullmatch(text) is not None


def split_address(text: str) -> tuple[str, int] | None:
    """Host, which may be empty or anything, and port, 0 to 65535; None where it is none such."""
    host, colon, digits = text.strip().rpartition(":")
    port = whole_number(digits, 65535)
    if not colon or port is None:
        return None
    return host.removeprefix("[").removesuffix("]"), port


def split_target(text: str) -> tuple[str, int] | None:
    """Host and port of what can be connected to: neither may be left open."""
    found = split_address(text)
    return found if found and all(found) else None
