"""Keeps optional packages of our dependencies out of a process that has no use for them.

Some libraries import another one wherever it happens to be installed: kio's types import hypothesis
to offer test strategies, structlog imports rich to colour a terminal. In a developer's environment
every command and every node would start a fifth of a second later and take ten MB more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Inside, `import name` fails as if the package weren't installed; afterwards it works again.

    A package that was imported before stays as it is.
    """
    # Python's own way to say so: https://docs.python.org/3/reference/import.html#the-module-cache
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
