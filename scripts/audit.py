"""The audits for spark-submit: `spark-submit scripts/audit.py verify DIR …`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pykraft.audit_cli import add_commands


def main() -> int:
    """The exit code, as of `pykraft audit`."""
    parser = argparse.ArgumentParser(prog="audit.py", description=__doc__)
    add_commands(parser.add_subparsers(dest="command", required=True))
    args = parser.parse_args()
    code: int = args.run(args)
    return code


if __name__ == "__main__":
    sys.exit(main())
