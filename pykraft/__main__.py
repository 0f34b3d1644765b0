"""`pykraft` and `python -m pykraft`: the command line."""

from __future__ import annotations

import sys

from pykraft.cli import main

if __name__ == "__main__":
    sys.exit(main())
