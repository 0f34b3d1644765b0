"""Whole numbers in text: settings, names of files, what people type.

`str.isdigit` is true of digits that `int` refuses (`²`) and of those of other scripts, and `int`
refuses very long ones.
"""

from __future__ import annotations

from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 20  # as many as the name of a segment has


def whole_number(text: str, most: int = INT64_MAX) -> int | None:
    """The number from 0 to `most` that the text is in ASCII digits; None where it is none such."""
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= most else None


def integer(text: str) -> int | None:
    """As `whole_number`, with a minus sign or without."""
    number = whole_number(text.removeprefix("-"))
    if number is None:
        return None
    return -number if text.startswith("-") else number
