"""House rules that no linter knows, each a function from a file's text to (line, what is wrong).

Determinism is why most of them are there: a node is simulated from one seed, so what it decides
may depend on nothing but what it was handed (docs: ARCHITECTURE.md, "Decisions are pure").
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from setuptools import find_packages

Finding = tuple[int, str]
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

# What runs inside a node and so inside the simulation.
NODE_ROOMS = ("wire", "net", "metadata", "storage", "raft", "controller", "broker", "admin")

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600

BANNED_CALLS = {
    "time.time": "env.clock",
    "time.time_ns": "env.clock",
    "time.monotonic": "env.clock",
    "time.monotonic_ns": "env.clock",
    "time.perf_counter": "env.clock",
    "time.sleep": "the event loop",
    "datetime.now": "env.clock",
    "datetime.utcnow": "env.clock",
    "datetime.datetime.now": "env.clock",
    "datetime.datetime.utcnow": "env.clock",
    "random.Random": "env.chance",
    "random.random": "env.chance",
    "random.randint": "env.chance",
    "random.choice": "env.chance",
    "random.shuffle": "env.chance",
    "random.uniform": "env.chance",
    "secrets.token_bytes": "env.chance",
    "uuid.uuid1": "env.ids",
    "uuid.uuid4": "env.ids",
    "uuid4": "env.ids",
    "os.urandom": "env.chance",
    "open": "env.disk",
    "threading.Thread": "env.run_blocking",
    "asyncio.run": "the entry points",
    "asyncio.to_thread": "env.run_blocking",
    "asyncio.wait_for": "asyncio.timeout",
    "asyncio.as_completed": "tasks awaited in order",
}
BANNED_OS = {
    "open",
    "rename",
    "replace",
    "remove",
    "unlink",
    "mkdir",
    "makedirs",
    "listdir",
    "scandir",
    "fsync",
    "fdatasync",
    "truncate",
    "ftruncate",
    "pread",
    "pwrite",
    "write",
    "read",
    "stat",
}
BANNED_IMPORTS = {"time": ("time", "monotonic", "sleep", "perf_counter"), "uuid": ("uuid4",)}


def product_files(root: Path) -> list[Path]:
    """Every Python file that ships, without generated stubs."""
    return [
        path
        for room in ROOMS
        for path in sorted((root / room).rglob("*.py"))
        if "stubs" not in path.parts
    ]


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def no_clock_or_chance(path: Path, text: str) -> Iterator[Finding]:
    """Time, chance, threads and files come from `env`, not from the interpreter."""
    if path.parts[0] not in NODE_ROOMS:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module in BANNED_IMPORTS:
            for alias in node.names:
                if alias.name in BANNED_IMPORTS[node.module]:
                    yield node.lineno, f"imports {node.module}.{alias.name}: use env"
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            if name in BANNED_CALLS:
                yield node.lineno, f"calls {name}: use {BANNED_CALLS[name]}"
            elif name.startswith("os.") and name[3:] in BANNED_OS:
                yield node.lineno, f"calls {name}: use env.disk"


def _is_set(node: ast.expr, sets: dict[str, None]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and _dotted(node.func) in ("set", "frozenset"):
        return True
    return _dotted(node) in sets


def _set_names(tree: ast.AST) -> dict[str, None]:
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            annotation = ast.unparse(node.annotation)
            if re.match(r"(set|frozenset)\b", annotation):
                names[_dotted(node.target)] = None
        elif isinstance(node, ast.Assign) and _is_set(node.value, {}):
            for target in node.targets:
                names[_dotted(target)] = None
    names.pop("", None)
    return names


def no_set_iteration(path: Path, text: str) -> Iterator[Finding]:
    """A set's order differs between runs: iterate over a dict, or sort."""
    if path.parts[0] not in NODE_ROOMS:
        return
    tree = ast.parse(text)
    sets = _set_names(tree)
    for node in ast.walk(tree):
        iterated: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor):
            iterated = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            iterated = [generator.iter for generator in node.generators]
        elif isinstance(node, ast.Call) and _dotted(node.func) in ("list", "tuple", "iter", "next"):
            iterated = node.args[:1]
        for item in iterated:
            if _is_set(item, sets):
                yield item.lineno, "iterates over a set"


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
    short_functions,
    short_files,
    nothing_left_open,
]
