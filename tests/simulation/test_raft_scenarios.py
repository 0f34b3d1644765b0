"""The scripted scenarios of the quorum core: what happens is what is written in scenarios/."""

import sys

import pytest
from raft_scenarios import SCENARIOS, main, play

FILES = sorted(SCENARIOS.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path):
    expected = path.read_text()
    assert play(expected) == expected, "see raft_scenarios.py for how to rewrite it"


def test_there_are_scenarios():
    assert len(FILES) >= 12


def test_a_changed_expectation_is_noticed_and_rewritten(tmp_path, monkeypatch):
    right = (SCENARIOS / "election.txt").read_text()
    wrong = right.replace("n1 leads epoch 1", "n2 leads epoch 1")
    assert play(wrong) == right != wrong
    path = tmp_path / "election.txt"
    path.write_text(wrong)
    monkeypatch.setattr(sys, "argv", ["raft_scenarios.py", "--rewrite", str(path)])
    main()
    assert path.read_text() == right


def test_a_command_that_is_none():
    with pytest.raises(ValueError, match="no command 'dance'"):
        play("cluster 3\ndance 1\n")
