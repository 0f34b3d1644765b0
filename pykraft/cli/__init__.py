"""The command line: one module a noun, imported when it is called for."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NoReturn

from wire.errors import KafkaError

# noun -> (module with `add_arguments(parser)`, one line of help)
NOUNS = {
    "cluster": ("pykraft.cli.cluster", "a local cluster: up, status, kill, start, stop, down"),
    "server": ("pykraft.cli.server", "one node in the foreground"),
    "storage": ("pykraft.cli.storage", "prepare and look at log directories"),
    "topics": ("pykraft.cli.topics", "create, list, describe, delete topics; add partitions"),
    "configs": ("pykraft.cli.configs", "describe and alter configs of topics, brokers and groups"),
    "groups": ("pykraft.cli.groups", "consumer groups: list, describe, reset, delete"),
    "brokers": ("pykraft.cli.brokers", "list registered brokers; unregister one"),
    "quorum": ("pykraft.cli.quorum", "describe the controller quorum, add and remove voters"),
    "features": ("pykraft.cli.features", "describe, upgrade, downgrade, disable features"),
    "elect": ("pykraft.cli.elect", "elect preferred (or, where allowed, unclean) leaders"),
    "watch": ("pykraft.cli.watch", "committed metadata changes as they happen"),
    "log": ("pykraft.cli.log", "decode log and snapshot files"),
    "audit": ("pykraft.cli.audit", "is a metadata log sound, what did it say when (in Spark)"),
}


_GIVEN = "_given"
_NO_VALUE = re.compile(r"argument (--\S+): expected one argument")


class CommandError(Exception):
    """A refusal that a user can act on: one line saying what, why and what is allowed."""


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: that takes longer than most commands."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        print(f"pykraft {metadata.version('pykraft')}")
        parser.exit()


class _Once(argparse.Action):
    """Stores a value, and refuses another: of two the last would win without a word."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        given: frozenset[str] = getattr(namespace, _GIVEN, frozenset())
        if option_string is not None and self.dest in given:
            raise argparse.ArgumentError(self, "it is given twice")
        setattr(namespace, _GIVEN, given | {self.dest})
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    """Its verbs' parsers are of this class, too."""

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self._arguments: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What the parser of a verb doesn't know is its own to refuse, with its own usage: those
        above it would name only the nouns."""
        self._arguments = () if args is None else tuple(args)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """As ever, but where a value was taken for an option it says how to write that."""
        match = _NO_VALUE.fullmatch(message)
        if match is not None:
            option = match[1]
            for word, value in pairwise(self._arguments):
                # An option may be shortened.
                if word.startswith("--") and option.startswith(word) and self._is_value(value):
                    message += f"; a value that begins with '-' is written {option}={value}"
                    break
        super().error(message)

    def _is_value(self, word: str) -> bool:
        """Whether `word`, which follows an option, begins with '-' and is none itself."""
        name = word.partition("=")[0]
        return word.startswith("-") and not any(
            option.startswith(name) for option in self._option_string_actions
        )


def _parser(noun: str | None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pykraft", description="A KRaft cluster in Python, and an audit of its metadata log."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    nouns = parser.add_subparsers(dest="noun", metavar="COMMAND", required=True)
    for name, (module, summary) in NOUNS.items():
        child = nouns.add_parser(name, help=summary, description=summary)
        if name == noun:
            importlib.import_module(module).add_arguments(child)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code (0 done, 1 refused or failed, 2 not a command)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    noun = next((word for word in arguments if not word.startswith("-")), None)
    try:
        # What a noun is made of is imported here, which takes long enough to be interrupted.
        options = _parser(noun).parse_args(arguments)
        code = options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        print(f"pykraft: {error}", file=sys.stderr)
        return 1
    except KafkaError as error:
        print(f"pykraft: {error.code.name.upper()}: {error.message}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nobody is left to say anything to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as interrupt:
        for note in getattr(interrupt, "__notes__", ()):
            print(f"pykraft: {note}", file=sys.stderr)
        return 128 + getattr(interrupt, "number", signal.SIGINT)
    return int(code)
