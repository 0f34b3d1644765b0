"""What can go wrong between two nodes, told apart by what the caller may do next."""

from __future__ import annotations


class NetworkError(Exception):
    """The peer gave no answer. Whether it acted on the request is unknown, unless stated."""


class ConnectFailed(NetworkError):
    """No connection came about, so nothing was sent."""


class ConnectionLost(NetworkError):
    """The connection ended before the answer came; the request may or may not have taken effect."""


class RequestTimedOut(NetworkError):
    """No answer within the request's own time; the request may or may not take effect yet."""


class UnsupportedVersion(NetworkError):
    """The peer and we share no version of an API; nothing was sent."""

    def __init__(self, api_key: int, wanted: str, offered: str) -> None:
        self.api_key = api_key
        super().__init__(
            f"API key {api_key}: we speak {wanted}, the peer {offered}: no version in common"
        )
