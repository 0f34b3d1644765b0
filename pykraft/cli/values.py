"""Types of options and arguments. A value that none of them takes is refused as no command."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wire.numbers import INT32_MAX, INT64_MAX, whole_number

_DAY_S: Final = 86_400
_DECIMAL: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SHOWN: Final = 60  # characters of what was given


def _refusal(text: str, rule: str) -> argparse.ArgumentTypeError:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return argparse.ArgumentTypeError(f"{shown!r}: must be {rule}")


def _number(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        found = whole_number(text, most)
        if found is None or found < least:
            raise _refusal(text, f"a whole number from {least} to {most}")
        return found

    return parse


node_id = _number(0, INT32_MAX)
count = _number(1, INT32_MAX)
count_or_none = _number(0, INT32_MAX)
"""Where what it may be depends on more, and is checked there."""
port = _number(1, 65_535)
offset = _number(0, INT64_MAX)


def seconds(text: str) -> float:
    """A time limit. `float` takes `inf`, `nan` and digits of any script, too."""
    limit = float(text) if _DECIMAL.fullmatch(text) else 0.0
    if not 0 < limit <= _DAY_S:
        raise _refusal(text, f"seconds, more than 0 and at most {_DAY_S}")
    return limit


def filled(text: str) -> str:
    """A text. An empty one is a script's variable that is not set, no wish for a default."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def path(text: str) -> Path:
    """A path. Of an empty one `Path` would make the current directory."""
    return Path(filled(text))
