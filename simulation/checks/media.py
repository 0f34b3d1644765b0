"""Looks at a simulated disk from outside: no operation of a node, nothing in the trace."""

from __future__ import annotations

from typing import Any

from world.memory import Media, _Directory, _Inode


def peek(file: Any, length: int, position: int) -> bytes:
    """Bytes of an open file as its process sees them."""
    return bytes(memoryview(file._inode.content)[position : position + length])


def durable(media: Media, path: str) -> bytearray | None:
    """What a power loss now would leave of a file for sure; None where its name might go too."""
    node = _durable_node(media, path)
    return node.durable if isinstance(node, _Inode) else None


def durable_files(media: Media, path: str) -> list[str]:
    """The files of a directory that a power loss now would leave, with all that is in them."""
    node = _durable_node(media, path)
    if not isinstance(node, _Directory):
        return []
    return [
        name
        for name, file in node.durable.items()
        if isinstance(file, _Inode) and file.durable == file.content
    ]


def _durable_node(media: Media, path: str) -> _Inode | _Directory | None:
    node: _Inode | _Directory | None = media.root
    for name in media.names(path):
        if not isinstance(node, _Directory):
            return None
        node = node.durable.get(name)
    return node
