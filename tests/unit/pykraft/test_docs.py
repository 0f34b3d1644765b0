"""The docs say what the code says, and their links lead somewhere."""

import importlib.util
import inspect
import re
import tomllib
from importlib.machinery import SourceFileLoader
from inspect import Parameter, Signature
from pathlib import Path

import pytest

from pykraft.testing import Cluster
from wire.exits import MEANINGS

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.fixture(scope="module")
def generate():
    loader = SourceFileLoader("generate_docs", str(ROOT / "scripts" / "generate-docs"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def test_made_parts_are_fresh(generate):
    stale = [str(page) for page, _ in generate.stale(PAGES)]
    assert stale == [], "run scripts/generate-docs"


def test_every_part_is_on_some_page(generate):
    text = "".join(page.read_text() for page in PAGES)
    for name in generate.PARTS:
        assert f"<!-- made: {name} -->" in text


def test_a_stale_part_is_noticed(generate, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# x\n<!-- made: exit codes -->\n| 4 | old |\n<!-- end -->\ntail\n")
    ((_, fresh),) = generate.stale([page])
    assert fresh.startswith("# x\n")
    assert fresh.endswith("<!-- end -->\ntail\n")
    assert "old" not in fresh
    page.write_text(fresh)
    assert generate.stale([page]) == []


def test_every_exit_code_has_a_line_on_what_to_do():
    text = (ROOT / "docs" / "operations.md").read_text()
    advised = [
        n for line in re.findall(r"^- \*\*([\d, ]+)\*\*:", text, re.M) for n in line.split(",")
    ]
    assert sorted(map(int, advised)) == sorted(MEANINGS)


def signature(method):
    """`name(a, *, b=1)`, without types."""
    plain = [
        parameter.replace(annotation=Parameter.empty)
        for name, parameter in inspect.signature(method).parameters.items()
        if name != "self"
    ]
    return f"{method.__name__}{Signature(plain)}"


@pytest.mark.parametrize("name", [name for name in vars(Cluster) if not name.startswith("_")])
def test_every_method_of_a_cluster_for_tests_is_told_with_its_arguments(name):
    member = vars(Cluster)[name]
    wanted = name if isinstance(member, property) else signature(member)
    assert f"`{wanted}`" in (ROOT / "docs" / "testing-with-pykraft.md").read_text()


def test_every_package_that_is_installed_is_told():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = settings["tool"]["setuptools"]["packages"]["find"]["include"]
    text = (ROOT / "docs" / "testing-with-pykraft.md").read_text()
    assert [name for name in included if f"`{name.removesuffix('*')}`" not in text] == []


def _anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        aim = page if not path else page.parent / path
        assert aim.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", aim.read_text(), re.M)
            assert anchor in map(_anchor, headings), target
