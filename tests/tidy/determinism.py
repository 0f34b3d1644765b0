"""House rules that make a node's run a function of its world: see simulation/.

A node is simulated from one seed and must do the same each time, in any process. What it reads
from the interpreter instead of `env` (time, chance, files, threads), and what it decides by the
order of a set or by an address, would differ. No run of one process sees the latter: only these
rules and the runs in two processes (tests/simulation/test_whole_nodes.py) do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

Finding = tuple[int, str]

# What runs inside a simulated node, and what simulates it.
_ROOMS = (
    "wire",
    "net",
    "metadata",
    "storage",
    "raft",
    "controller",
    "broker",
    "admin",
    "simulation",
)
_FILES = (
    "pykraft/directories.py",
    "pykraft/node.py",
    "pykraft/node_config.py",
    "pykraft/publisher.py",
    "pykraft/storage_format.py",
    "world/memory.py",
)

# Module -> what stands in its place, for everything in it that is not in `_ALLOWED`.
_BANNED_MODULES = {
    "time": "env.clock",
    "random": "env.chance",
    "secrets": "env.chance",
    "uuid": "env.ids",
    "threading": "env.run_blocking",
    "concurrent.futures": "env.run_blocking",
    "multiprocessing": "env.run_blocking",
    "subprocess": "nothing",
    "socket": "the event loop",
    "tempfile": "env.disk",
    "shutil": "env.disk",
    "glob": "env.disk",
    "gc": "env.settle_memory",
    "signal": "the entry points",
}
_ALLOWED = {
    "random.Random",  # as a type; making one is seen below
    "threading.Event",  # the door's client, outside of nodes
    "uuid.SafeUUID",
    "uuid.UUID",
}
# What makes a world, besides a Random with a seed: it holds the collector off while it runs, and
# closes what is left of it afterwards.
_WORLDS_MAY = {"asyncio.all_tasks", "gc.collect", "gc.disable", "gc.enable", "gc.isenabled"}

_BANNED_CALLS = {
    "datetime.date.today": "env.clock",
    "datetime.datetime.now": "env.clock",
    "datetime.datetime.today": "env.clock",
    "datetime.datetime.utcnow": "env.clock",
    "random.Random": "env.chance",
    "open": "env.disk",
    "io.open": "env.disk",
    "id": "a number of its own",
    "hash": "crc32 or another fixed hash",
    "input": "nothing",
    "asyncio.run": "the entry points",
    "asyncio.to_thread": "env.run_blocking",
    "asyncio.wait_for": "asyncio.timeout",
    "asyncio.as_completed": "tasks awaited in order",
    "asyncio.all_tasks": "a dict of your own",
}
_BANNED_OS = {
    "access",
    "cpu_count",
    "environ",
    "fdatasync",
    "fstat",
    "fsync",
    "ftruncate",
    "getenv",
    "getpid",
    "link",
    "listdir",
    "lstat",
    "makedirs",
    "mkdir",
    "open",
    "pread",
    "preadv",
    "pwrite",
    "pwritev",
    "read",
    "remove",
    "rename",
    "replace",
    "rmdir",
    "scandir",
    "stat",
    "truncate",
    "unlink",
    "urandom",
    "walk",
    "write",
}
# Calls whose result has the order of what they are given.
_KEEP_ORDER = (
    "dict.fromkeys",
    "enumerate",
    "filter",
    "iter",
    "list",
    "map",
    "next",
    "reversed",
    "tuple",
    "zip",
)
_TAKE_IN_ORDER = ("extend", "extendleft", "join", "writelines")
_MUTABLE = ("Counter", "OrderedDict", "bytearray", "defaultdict", "deque", "dict", "list", "set")
_COUNTERS = ("count", "itertools.count", "cycle", "itertools.cycle")


def _inside(path: Path) -> bool:
    return path.parts[0] in _ROOMS or path.as_posix() in _FILES


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an expression of that form, else the empty string for what isn't."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


# -- what comes from the interpreter --------------------------------------------------------------


def _imports(tree: ast.AST) -> dict[str, str]:
    """Names in the file that stand for something imported, as `module` or `module.name`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _resolved(name: str, imports: dict[str, str]) -> str:
    first, _, rest = name.partition(".")
    full = imports.get(first, first if not rest else f"?{first}")
    return f"{full}.{rest}" if rest else full


def no_clock_or_chance(path: Path, text: str) -> Iterator[Finding]:
    """Time, chance, threads, files and addresses come from `env`, not from the interpreter."""
    if not _inside(path):
        return
    tree = ast.parse(text)
    imports = _imports(tree)
    makes_worlds = path.parts[0] == "simulation" or path.name == "memory.py"
    own_hashes = _calls_in_hash_methods(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in _BANNED_MODULES:
            for alias in node.names:
                if f"{node.module}.{alias.name}" not in _ALLOWED:
                    instead = _BANNED_MODULES[node.module]
                    yield node.lineno, f"imports {node.module}.{alias.name}: use {instead}"
        elif isinstance(node, ast.Attribute):
            name = _resolved(dotted(node), imports)
            module = name.rpartition(".")[0]
            if makes_worlds and name in _WORLDS_MAY:
                continue
            if module in _BANNED_MODULES and name not in _ALLOWED:
                yield node.lineno, f"uses {name}: use {_BANNED_MODULES[module]}"
            elif module == "os" and node.attr in _BANNED_OS:
                yield node.lineno, f"uses {name}: use env"
        elif isinstance(node, ast.Call):
            name = _resolved(dotted(node.func), imports)
            seeded = name == "random.Random" and node.args
            if makes_worlds and (seeded or name in _WORLDS_MAY):
                continue
            if name in _BANNED_CALLS and node not in own_hashes:
                yield node.lineno, f"calls {name}: use {_BANNED_CALLS[name]}"


def _calls_in_hash_methods(tree: ast.AST) -> list[ast.AST]:
    """A `__hash__` may ask its parts for theirs."""
    return [
        call
        for method in ast.walk(tree)
        if isinstance(method, ast.FunctionDef) and method.name == "__hash__"
        for call in ast.walk(method)
    ]


# -- what has no order ----------------------------------------------------------------------------


def _is_set(node: ast.AST, sets: dict[str, None]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call) and dotted(node.func) in ("set", "frozenset"):
        return True
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
    ):
        return _is_set(node.left, sets)
    return dotted(node) in sets


def _is_set_annotation(annotation: ast.expr | None) -> bool:
    text = "" if annotation is None else ast.unparse(annotation)
    return re.match(r"(set|frozenset|Set|AbstractSet)\b", text) is not None


def _waited(node: ast.AST) -> bool:
    """`await asyncio.wait(…)`: two sets, of which the first is what is done."""
    return (
        isinstance(node, ast.Await)
        and isinstance(node.value, ast.Call)
        and dotted(node.value.func) in ("asyncio.wait", "wait")
    )


def _set_names(tree: ast.AST) -> dict[str, None]:
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and _is_set_annotation(node.annotation):
            names[dotted(node.target)] = None
        elif isinstance(node, ast.arg) and _is_set_annotation(node.annotation):
            names[node.arg] = None
        elif isinstance(node, ast.Assign) and _is_set(node.value, {}):
            for target in node.targets:
                names[dotted(target)] = None
        elif isinstance(node, ast.Assign) and _waited(node.value):
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    names.update(dict.fromkeys(dotted(element) for element in target.elts))
    names.pop("", None)
    return names


def _iterated(node: ast.AST) -> list[ast.expr]:
    """The expressions whose order a node takes over."""
    if isinstance(node, ast.For | ast.AsyncFor):
        return [node.iter]
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        return [generator.iter for generator in node.generators]
    if isinstance(node, ast.YieldFrom):
        return [node.value]
    if isinstance(node, ast.List | ast.Tuple | ast.Call):
        items = node.args if isinstance(node, ast.Call) else node.elts
        starred = [item.value for item in items if isinstance(item, ast.Starred)]
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in _KEEP_ORDER:
                return starred + node.args
            if isinstance(node.func, ast.Attribute) and node.func.attr in _TAKE_IN_ORDER:
                return starred + node.args
        return starred
    return []


def no_set_iteration(path: Path, text: str) -> Iterator[Finding]:
    """A set's order differs between runs: iterate over a dict, or sort."""
    if not _inside(path):
        return
    tree = ast.parse(text)
    sets = _set_names(tree)
    for node in ast.walk(tree):
        for item in _iterated(node):
            if _is_set(item, sets):
                yield item.lineno, "iterates over a set"
            elif isinstance(item, ast.Subscript) and _waited(item.value):
                yield item.lineno, "iterates over what asyncio.wait returned"
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "pop"
            and not node.args
            and _is_set(node.func.value, sets)
        ):
            yield node.lineno, "takes any element of a set"


# -- what outlives a node -------------------------------------------------------------------------


def no_module_state(path: Path, text: str) -> Iterator[Finding]:
    """Many nodes live in one process, one after the other too: a module holds only constants."""
    if not _inside(path):
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield node.lineno, f"assigns to the global {', '.join(node.names)}"
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        final = isinstance(node, ast.AnnAssign) and "Final" in ast.unparse(node.annotation)
        if value is None or final:
            continue
        if isinstance(value, ast.Dict) and not value.keys:
            yield node.lineno, "an empty dict that is to be filled"
        elif isinstance(value, ast.List) and not value.elts:
            yield node.lineno, "an empty list that is to be filled"
        elif isinstance(value, ast.Call):
            name = dotted(value.func)
            if name in _COUNTERS or (name in _MUTABLE and not value.args):
                yield node.lineno, f"{name}() at module level"
