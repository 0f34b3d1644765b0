"""Commands and nodes start without what only tests and terminals need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pykraft.imports import without


def loaded_after(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{program}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_command_line_starts_without_hypothesis() -> None:
    loaded = loaded_after("import pykraft.__main__")
    assert "pykraft.cli" in loaded
    assert "hypothesis" not in loaded


def test_a_node_starts_without_hypothesis_and_rich() -> None:
    loaded = loaded_after(
        "import pykraft.__main__\nfrom pykraft.imports import without\n"
        "with without('rich'):\n    import pykraft.server"
    )
    assert "pykraft.server" in loaded
    assert not {"hypothesis", "rich"} & dict.fromkeys(loaded).keys()


def test_hidden_packages_can_be_imported_again() -> None:
    sys.modules.pop("colorsys", None)
    with without("colorsys"), pytest.raises(ImportError):
        import colorsys
    import colorsys

    with without("colorsys"):
        import colorsys as still_there
    assert still_there is colorsys
