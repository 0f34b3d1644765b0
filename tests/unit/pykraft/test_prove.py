"""scripts/prove: its command line, its summary, and that a failing seed is told."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def prove(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import prove

    yield prove
    for name in [name for name in sys.modules if name == "prove" or name.startswith("proving")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["poems"], "no part is called poems"),
        (["--seeds", "5"], "must be A:B"),
        (["--seeds", "5:5"], "must be A:B with A < B"),
        (["--minutes", "0"], "must be more than 0"),
        (["--results", "nowhere.md"], "no page with a results section"),
    ],
)
def test_a_bad_command_line_is_refused(prove, capsys, words, told):
    with pytest.raises(SystemExit) as ended:
        prove.parse(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_given_seeds_are_run_and_written_into_the_page(prove, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("# x\n<!-- results -->\nold\n<!-- end results -->\ntail\n")
    document = tmp_path / "out.json"
    words = ["seeds", "--seeds", "20:24", "--results", str(page), "--json", str(document)]
    assert prove.main(words) == 0
    text = page.read_text()
    assert "| seeds | passed |" in text
    assert "20 first seed, 4 runs" in text
    assert "old" not in text
    assert text.endswith("<!-- end results -->\ntail\n")
    assert '"verdict": "passed"' in document.read_text()


def test_a_failing_seed_is_named(prove, monkeypatch):
    from proving import seeds

    def broken(seed):
        raise AssertionError("two leaders")

    monkeypatch.setattr(seeds, "run_seed", broken)
    count, total, failures = seeds.run_batch(range(7, 9))
    assert (count, total) == (2, {})
    assert [failure.split(":")[0] for failure in failures] == ["seed 7", "seed 8"]
    assert "two leaders" in failures[0]


def test_the_page_of_results_has_its_section(prove):
    assert prove._SECTION.search((ROOT / "docs" / "testing.md").read_text())
