"""House rules that no linter knows, each a function from a file's text to (line, what is wrong).

Those about determinism have a file of their own, determinism.py.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from determinism import Finding, no_clock_or_chance, no_module_state, no_set_iteration
from setuptools import find_packages

FileRule = Callable[[Path, str], Iterator[Finding]]

ROOMS = [
    "world",
    "wire",
    "net",
    "metadata",
    "storage",
    "raft",
    "controller",
    "broker",
    "admin",
    "pykraft",
    "simulation",
    "spark_audit",
]

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600


def product_files(root: Path) -> list[Path]:
    """Every Python file that ships, without generated stubs."""
    return [
        path
        for room in ROOMS
        for path in sorted((root / room).rglob("*.py"))
        if "stubs" not in path.parts
    ]


def short_functions(path: Path, text: str) -> Iterator[Finding]:
    """A function fits on a screen."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {lines} lines, {FUNCTION_LINES_MAX} allowed"


def short_files(path: Path, text: str) -> Iterator[Finding]:
    """A file has one job."""
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield 1, f"{lines} lines, {FILE_LINES_MAX} allowed"


def nothing_left_open(path: Path, text: str) -> Iterator[Finding]:
    """Work that is not done stands in docs/compatibility.md, not in the code."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b", line):
            yield number, "left open"


def _is_module_name(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+", node.value) is not None
    )


def orphans(root: Path) -> list[str]:
    """Modules that nothing imports and nobody starts."""
    imported: dict[str, None] = {}
    sources = [*product_files(root), *(root / "tests").rglob("*.py")]
    sources += [path for path in (root / "scripts").iterdir() if path.is_file()]
    for path in sources:
        text = path.read_text()
        if path.suffix != ".py" and "python" not in text.splitlines()[0]:
            imported.update(dict.fromkeys(re.findall(r"-m ([\w.]+)", text)))
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported.update(dict.fromkeys(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom) and node.module:
                package = node.module
                if node.level:
                    parts = path.relative_to(root).with_suffix("").parts[: -node.level]
                    package = ".".join([*parts, node.module])
                imported[package] = None
                imported.update(dict.fromkeys(f"{package}.{alias.name}" for alias in node.names))
            elif _is_module_name(node):
                # Modules that are imported by name when they are first used.
                imported[ast.literal_eval(node)] = None
    found = []
    for path in product_files(root):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[-1] not in ("__init__", "__main__") and ".".join(parts) not in imported:
            found.append(str(path.relative_to(root)))
    return found


def wheel_packages(root: Path) -> list[str]:
    """Top-level names that the wheel would install."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    include = settings["tool"]["setuptools"]["packages"]["find"]["include"]
    return sorted({name.split(".")[0] for name in find_packages(str(root), include=include)})


FILE_RULES: list[FileRule] = [
    no_clock_or_chance,
    no_set_iteration,
    no_module_state,
    short_functions,
    short_files,
    nothing_left_open,
]
