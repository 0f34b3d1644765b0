"""The newest offset of each key, in a fixed amount of memory. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

_DIGEST_SIZE = 16
_SLOT = struct.Struct(f"<{_DIGEST_SIZE}sq")
_HASHES = struct.Struct("<QQ")
_OFFSET = struct.Struct("<q")
_EMPTY = bytes(_DIGEST_SIZE)


class KeyMap:
    """Keys are told apart by 128 bits of their hash: that two share it is out of the question, even
    where somebody looks for such keys. A slot takes 24 bytes, as in Kafka.

    At most `budget_bytes` are taken, and no more than `most_keys` keys can need. The map is full
    when the share `load_factor` of it is in use; it always has room for one key.
    """

    def __init__(self, budget_bytes: int, load_factor: float, most_keys: int) -> None:
        affordable = max(budget_bytes // _SLOT.size, 3)
        wanted = int(most_keys / load_factor) + 3
        # A step between slots that is no multiple of a prime comes by all of them.
        self._slots = _prime_from(min(wanted, affordable))
        if self._slots > affordable:
            self._slots = _prime_upto(affordable)
        self.capacity = max(1, min(int(self._slots * load_factor), self._slots - 1))
        # Zeros that take no memory before they are written.
        size = self._slots * _SLOT.size
        self._table = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes of memory at most."""
        return self._slots * _SLOT.size

    def put(self, key: bytes, offset: int) -> bool:
        """Note an offset of a key, newer than all before; False if a new key finds no room."""
        digest = blake2b(key, digest_size=_DIGEST_SIZE).digest()
        at = self._place(digest)
        if self._table[at : at + _DIGEST_SIZE] == _EMPTY:
            if self._count >= self.capacity:
                return False
            self._count += 1
        _SLOT.pack_into(self._table, at, digest, offset)
        return True

    def newest(self, keys: Iterable[bytes]) -> list[int]:
        """The offset of each of these keys, -1 where there is none."""
        place, read = self._place, _OFFSET.unpack_from
        table = self._table
        offsets = []
        for key in keys:
            at = place(blake2b(key, digest_size=_DIGEST_SIZE).digest())
            used = table[at : at + _DIGEST_SIZE] != _EMPTY
            offsets.append(read(table, at + _DIGEST_SIZE)[0] if used else -1)
        return offsets

    def _place(self, digest: bytes) -> int:
        """Where in the table the digest is, or would go."""
        table, slots = self._table, self._slots
        first, second = _HASHES.unpack(digest)
        slot = first % slots
        at: int = slot * _SLOT.size
        found = table[at : at + _DIGEST_SIZE]
        while found != digest and found != _EMPTY:
            slot = (slot + 1 + second % (slots - 1)) % slots
            at = slot * _SLOT.size
            found = table[at : at + _DIGEST_SIZE]
        return at

    def close(self) -> None:
        """Give the memory back."""
        self._table.close()


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _prime_from(number: int) -> int:
    while not _is_prime(number):
        number += 1
    return number


def _prime_upto(number: int) -> int:
    while not _is_prime(number):
        number -= 1
    return number
