"""What listens at an address that gRPC can't use: a look that needs no wait for a deadline."""

from __future__ import annotations

import socket
import time

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty SETTINGS
_FRAME_HEADER_BYTES = 9
_SETTINGS = 4
_WAIT_S = 2.0
_AGAIN_AFTER_S = 0.5


def is_other_listener(address: str) -> bool:
    """Whether something that speaks no gRPC accepts connections at `host:port`.

    It is looked at twice: a controller that comes up or goes may drop a single connection, but then
    refuses or serves the next. What is silent, or can't be reached, is not judged.
    """
    if not _drops(address):
        return False
    time.sleep(_AGAIN_AFTER_S)
    return _drops(address)


def _drops(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        places = socket.getaddrinfo(
            host.removeprefix("[").removesuffix("]"), int(port), type=socket.SOCK_STREAM
        )
    except (OSError, ValueError):
        return False  # the latter: a name that can't be one
    # A name may have several addresses, of which one that serves is enough.
    answers = [_answer(family, place) for family, _, _, _, place in places]
    return "other" in answers and "maybe" not in answers


def _answer(family: int, place: tuple[object, ...]) -> str:
    """`other` where the answer to HTTP/2 isn't HTTP/2, `none` where nothing accepts, or `maybe`."""
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(_WAIT_S)
        try:
            connection.connect(place)
        except OSError:
            return "none"
        try:
            connection.sendall(_PREFACE)
            first = connection.recv(_FRAME_HEADER_BYTES)
        except TimeoutError:
            return "maybe"
        except OSError:
            return "other"
    # HTTP/2 servers begin with SETTINGS; of a header that comes in pieces the rest is on its way.
    if 0 < len(first) <= 3:
        return "maybe"
    return "maybe" if len(first) > 3 and first[3] == _SETTINGS else "other"
