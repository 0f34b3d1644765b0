"""Walks the batches of a segment or snapshot, and past damage.

Plain Python without numpy, for `log dump` and for the audits alike. The next batch after
damage is the first place where magic, length and CRC-32C all fit (the CRC covers neither
base offset nor leader epoch, so those two are not proof of anything).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap

from crc32c import crc32c

HEADER_SIZE = 61
MIN_LENGTH = HEADER_SIZE - 12  # of the length field
_LENGTH = struct.Struct(">i")
_PEEK = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_SANITY = struct.Struct(">hiqqqhii")  # attributes … record count, at byte 21
_ZEROS = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class Damage:
    """A stretch of bytes that is no batch. `resume` is where the next batch starts, if any."""

    code: str
    position: int
    detail: str
    resume: int | None
    offset: int | None = None
    epoch: int | None = None


def _all_zero(data: bytes | mmap, start: int, end: int) -> bool:
    for position in range(start, end, len(_ZEROS)):
        stop = min(position + len(_ZEROS), end)
        if data[position:stop] != _ZEROS[: stop - position]:
            return False
    return True


def _fits(data: bytes | mmap, view: memoryview, position: int, end: int) -> bool:
    """Whether a whole batch with a right CRC starts at `position`."""
    base_offset, length, epoch, magic, crc = _PEEK.unpack_from(data, position)
    if magic != 2 or length < MIN_LENGTH or position + 12 + length > end:
        return False
    if base_offset < 0 or epoch < -1:
        return False
    attributes, delta, _, _, _, _, _, count = _SANITY.unpack_from(data, position + 21)
    if attributes & ~0x7F or delta < 0 or count < 0 or count > length:
        return False
    return bool(crc32c(view[position + 21 : position + 12 + length]) == crc)


def resync(data: bytes | mmap, start: int, end: int) -> int | None:
    """The first position at or after `start` where a sound batch begins; None if there is none."""
    with memoryview(data) as view:
        search = start + 16
        while True:
            at = data.find(b"\x02", search, end)
            if at < 0 or at - 16 + HEADER_SIZE > end:
                return None
            if _fits(data, view, at - 16, end):
                return at - 16
            search = at + 1


def _damage(data: bytes | mmap, position: int, end: int) -> Damage:
    """Names what is wrong at `position`, where no sound batch starts."""
    left = end - position
    if _all_zero(data, position, end):
        return Damage("zero-tail", position, f"{left} zero bytes to the end of the file", None)
    if left < HEADER_SIZE:
        return Damage("truncated-tail", position, f"{left} bytes, less than a batch header", None)
    base_offset, length, epoch, magic, _ = _PEEK.unpack_from(data, position)
    resume = resync(data, position + 1, end)
    tail = "" if resume is None else f"; resumes at {resume}"
    if magic != 2:
        return Damage("bad-magic", position, f"magic {magic}{tail}", resume)
    if length < MIN_LENGTH:
        detail = f"length field {length}, at least {MIN_LENGTH} is needed{tail}"
        return Damage("bad-length", position, detail, resume)
    if length + 12 > left:
        code = "truncated-tail" if resume is None else "bad-length"
        detail = f"batch of {length + 12} bytes, {left} there{tail}"
        return Damage(code, position, detail, resume, base_offset, epoch)
    if base_offset < 0:  # the CRC doesn't cover it
        return Damage("bad-records", position, f"base offset {base_offset}{tail}", resume)
    return Damage(
        "crc-mismatch", position, f"offset {base_offset}{tail}", resume, base_offset, epoch
    )


def walk(
    data: bytes | mmap, start: int = 0, end: int | None = None
) -> tuple[list[int], list[Damage]]:
    """Positions of all sound batches in data[start:end], and the damage between them."""
    end = len(data) if end is None else end
    positions: list[int] = []
    damages: list[Damage] = []
    unpack = _PEEK.unpack_from
    position = start
    with memoryview(data) as view:
        while position < end:
            if end - position >= HEADER_SIZE:
                base_offset, length, _, magic, crc = unpack(data, position)
                after = position + 12 + length
                if (
                    magic == 2
                    and length >= MIN_LENGTH
                    and after <= end
                    and base_offset >= 0
                    and crc32c(view[position + 21 : after]) == crc
                ):
                    positions.append(position)
                    position = after
                    continue
            damage = _damage(data, position, end)
            damages.append(damage)
            if damage.resume is None:
                break
            position = damage.resume
    return positions, damages


def batch_start(data: bytes | mmap, chain: int = 3) -> int | None:
    """The first place in `data`, cut from the middle of a file, where batches surely start.

    Sure means that `chain` sound batches follow each other there, or as many as reach the end
    of `data` (a record may by chance hold bytes that look like one batch).
    """
    end = len(data)
    start = resync(data, 0, end)
    while start is not None:
        position, left = start, chain
        with memoryview(data) as view:
            while left and end - position >= HEADER_SIZE and _fits(data, view, position, end):
                position += 12 + _LENGTH.unpack_from(data, position + 8)[0]
                left -= 1
            cut_short = left and _may_be_cut(data, position, end)
        if not left or cut_short:
            return start
        start = resync(data, start + 1, end)
    return None


def _may_be_cut(data: bytes | mmap, position: int, end: int) -> bool:
    """Whether what starts at `position` could be a sound batch, were there more bytes."""
    if end - position < HEADER_SIZE:
        return True
    _, length, _, magic, _ = _PEEK.unpack_from(data, position)
    return bool(magic == 2 and length >= MIN_LENGTH and position + 12 + length > end)


def merge(positions: list[int], damages: list[Damage]) -> Iterator[int | Damage]:
    """Batch positions and damage in the order of the file."""
    remaining = iter(damages)
    damage = next(remaining, None)
    for position in positions:
        while damage is not None and damage.position < position:
            yield damage
            damage = next(remaining, None)
        yield position
    while damage is not None:
        yield damage
        damage = next(remaining, None)
