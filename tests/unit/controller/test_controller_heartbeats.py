from controller.heartbeats import BrokerState, Heartbeats


def beats(*brokers: int, fenced: bool = False) -> Heartbeats:
    heartbeats = Heartbeats(9_000)
    for broker in brokers:
        heartbeats.register(broker, 100 + broker, fenced=fenced, now_ms=0)
    return heartbeats


def following(heartbeats, broker, *, fence=False, shut=False, caught_up=True, leads=False):
    return heartbeats.next_state(
        broker, want_fence=fence, want_shut_down=shut, caught_up=caught_up, leads_any=lambda: leads
    )[1]


def test_sessions_end_in_the_order_of_silence():
    heartbeats = beats(1, 2, 3)
    heartbeats.touch(1, 500, fenced=False, metadata_offset=5)
    assert heartbeats.next_expiry_ms() == 9_001
    assert heartbeats.expired(9_000) == []
    assert heartbeats.expired(9_001) == [2, 3]
    assert heartbeats.expired(9_501) == [2, 3, 1]
    heartbeats.fence(2)
    assert heartbeats.expired(9_001) == [3]
    assert not heartbeats.has_session(2, 102, 9_001)


def test_a_session_belongs_to_an_epoch():
    heartbeats = beats(1)
    assert heartbeats.has_session(1, 101, 9_000)
    assert not heartbeats.has_session(1, 99, 9_000)
    assert not heartbeats.has_session(1, 101, 9_001)
    assert not heartbeats.has_session(7, 101, 0)


def test_fenced_states():
    heartbeats = beats(1, fenced=True)
    assert following(heartbeats, 1) is BrokerState.UNFENCED
    assert following(heartbeats, 1, caught_up=False) is BrokerState.FENCED
    assert following(heartbeats, 1, fence=True) is BrokerState.FENCED
    assert following(heartbeats, 1, shut=True) is BrokerState.SHUTDOWN_NOW


def test_unfenced_states():
    heartbeats = beats(1)
    assert following(heartbeats, 1) is BrokerState.UNFENCED
    assert following(heartbeats, 1, fence=True) is BrokerState.FENCED
    assert following(heartbeats, 1, fence=True, shut=True) is BrokerState.SHUTDOWN_NOW
    assert following(heartbeats, 1, shut=True) is BrokerState.SHUTDOWN_NOW
    assert following(heartbeats, 1, shut=True, leads=True) is BrokerState.CONTROLLED_SHUTDOWN


def test_controlled_shutdown_waits_for_leaders_and_readers():
    heartbeats = beats(1, 2)
    heartbeats.touch(2, 0, fenced=False, metadata_offset=40)
    heartbeats.set_controlled_shutdown_offset(1, 50)
    heartbeats.set_controlled_shutdown_offset(1, 60)
    stay = BrokerState.CONTROLLED_SHUTDOWN
    assert following(heartbeats, 1, shut=True, leads=True) is stay
    assert following(heartbeats, 1, shut=True) is stay
    heartbeats.touch(2, 0, fenced=False, metadata_offset=50)
    assert following(heartbeats, 1, shut=True) is BrokerState.SHUTDOWN_NOW
    heartbeats.touch(2, 0, fenced=True, metadata_offset=1)
    assert following(heartbeats, 1, shut=True) is BrokerState.SHUTDOWN_NOW
