"""`pykraft` and `python -m pykraft`: the command line."""

from __future__ import annotations

import sys

from pykraft.imports import without

with without("hypothesis"):
    from pykraft.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
