"""When a follower hears that the high watermark has risen: an observer at once (KIP-1166), a voter
with the next records, or a few milliseconds later."""

from core_rig import Core

from raft import effects as fx
from raft.events import ServeParked
from raft.state import QuorumConfig


def leading():
    """Node 1 leads; its first record is committed by the fetch of node 2, which is parked."""
    core = Core(config=QuorumConfig(news_wait_max_ms=5))
    core.win()
    core.sync()
    assert core.fetch_from(2, 1, 1, high_watermark=0) is None
    assert core.q.high_watermark == 1
    return core


def test_an_observer_hears_of_a_commit_at_once():
    core = leading()
    assert core.fetch_from(9, 1, 1, high_watermark=0).high_watermark == 1


def test_a_voter_hears_of_a_commit_with_the_next_records():
    core = leading()
    core.pass_ms(4)
    assert not core.of(fx.SendResponse)
    core.append()
    core.tell(ServeParked())
    (answer,) = core.of(fx.SendResponse)
    assert (answer.response.read_from, answer.response.high_watermark) == (1, 1)


def test_a_voter_hears_of_a_commit_soon_if_no_records_come():
    core = leading()
    core.pass_ms(5)
    (answer,) = core.of(fx.SendResponse)
    assert (answer.response.read_from, answer.response.high_watermark) == (None, 1)
