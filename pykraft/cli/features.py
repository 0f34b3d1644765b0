"""`pykraft features`: the levels that the cluster has finalised, and changing them."""

from __future__ import annotations

import argparse

from metadata.features import describe_level
from metadata.image import METADATA_VERSION
from pykraft.cli import CommandError, door
from pykraft.cli.levels import feature_levels, metadata_level


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the noun."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    door.verb(verbs, "describe", "supported and finalised levels", _describe)

    upgrade = door.verb(verbs, "upgrade", "raise levels; all or nothing", _change)
    downgrade = door.verb(verbs, "downgrade", "lower levels; all or nothing", _change)
    for changing in (upgrade, downgrade):
        changing.add_argument(
            "--metadata",
            metavar="VERSION",
            action="append",
            default=[],
            help="metadata.version as a release (4.1), a name (4.1-IV1) or a level (27)",
        )
        changing.add_argument("--feature", metavar="NAME=LEVEL", action="append", default=[])
    disable = door.verb(verbs, "disable", "set features to level 0; all or nothing", _change)
    disable.add_argument("--feature", metavar="NAME", action="append", default=[])
    for lowering in (downgrade, disable):
        lowering.add_argument(
            "--unsafe", action="store_true", help="even where that may lose metadata"
        )
    for changing in (upgrade, downgrade, disable):
        changing.add_argument(
            "--validate-only", action="store_true", help="check, but change nothing"
        )


def _wanted(options: argparse.Namespace) -> dict[str, int]:
    if options.verb == "disable":
        wanted = dict.fromkeys(options.feature, 0)
    else:
        wanted = feature_levels(options.feature)
        if options.metadata and METADATA_VERSION in wanted:
            raise CommandError(f"--metadata and --feature {METADATA_VERSION}: give one of them")
        for version in options.metadata:
            if METADATA_VERSION in wanted:
                raise CommandError(f"--metadata {version}: {METADATA_VERSION} is named twice")
            wanted[METADATA_VERSION] = metadata_level("--metadata", version)
    if not wanted:
        metadata = "" if options.verb == "disable" else " or --metadata"
        raise CommandError(f"nothing to {options.verb}: give --feature{metadata}")
    return wanted


def _change(options: argparse.Namespace) -> int:
    wanted = _wanted(options)
    with door.client(options) as admin:
        admin.update_features(
            wanted,
            downgrade=options.verb != "upgrade",
            unsafe=getattr(options, "unsafe", False),
            validate_only=options.validate_only,
        )
    if options.json:
        door.show({"levels": wanted, "validate_only": options.validate_only})
        return 0
    verb = "could be set to" if options.validate_only else "is now at"
    for name, level in wanted.items():
        print(f"{name} {verb} level {describe_level(name, level)}")
    return 0


def _describe(options: argparse.Namespace) -> int:
    with door.client(options) as admin:
        features = admin.describe_features()
    if options.json:
        door.show(features)
        return 0
    rows = [
        {"feature": name} | {key: describe_level(name, level) for key, level in found.items()}
        for name, found in features.items()
    ]
    door.table(rows, ("feature", "finalized", "min", "max"))
    return 0
