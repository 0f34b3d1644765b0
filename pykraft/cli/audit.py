"""`pykraft audit`: what a metadata log says, and whether it is sound; see `pykraft.audit_cli`."""

from __future__ import annotations

import argparse

from pykraft import audit_cli


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    audit_cli.add_commands(parser.add_subparsers(dest="verb", metavar="VERB", required=True))
