"""What strangers send a controller: names without end, brokers as voters, absurd listeners."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from kip853_rig import add, answer, caught_up, leading, remove, removed, voter
from test_raft_node_membership import ask, scene, upgraded

from net.handlers import Api, HandlerTable
from net.server import FeatureView, ListenerConfig, serve
from raft.events import VoterProbed
from raft.leading import MAX_OBSERVERS
from raft.voter_apis import VoterApis
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import fill, millis, request_module, response_class
from wire.uuids import to_text
from world.real import real_env

E = ErrorCode


def ids(core):
    return [key.node_id for key in core.q.role.observers]


def test_a_leader_remembers_the_observers_that_fetched_last():
    core = leading()
    for node_id in range(10, 10 + MAX_OBSERVERS):
        core.fetch_from(node_id, 3, 1)
    core.fetch_from(10, 3, 1)
    core.fetch_from(9_999, 3, 1)
    assert len(ids(core)) == MAX_OBSERVERS
    assert ids(core)[:1] + ids(core)[-2:] == [12, 10, 9_999], "11 was the longest silent"


def test_silent_observers_are_forgotten_in_their_order():
    core = leading()
    core.fetch_from(10, 3, 1)
    core.fetch_from(11, 3, 1)
    half = core.q.config.observer_session_ms // 2

    def pass_half():
        for _ in range(half // 100):
            core.fetch_from(2, 3, 1)
            core.fetch_from(3, 3, 1)
            core.pass_ms(100)

    pass_half()
    core.fetch_from(10, 3, 1)
    pass_half()
    core.pass_ms(100)
    assert ids(core) == [10]


def test_a_node_that_serves_no_quorum_isnt_added():
    core = leading()
    caught_up(core, 4)
    token = add(core, 4)
    core.tell(VoterProbed(token, (0, 1), serves_quorum=False))
    error, message = answer(core, token)
    assert error is E.invalid_request
    assert message.startswith("host:9004 is no controller's listener: it doesn't serve Vote")
    assert core.q.voters.ids == (1, 2, 3)
    caught_up(core, 4)
    core.tell(VoterProbed(add(core, 4), (0, 1)))
    assert core.q.voters.ids == (1, 2, 3, 4)


def test_another_voters_address_is_nobody_elses():
    """It would answer as a controller does; and nobody would ever reach the new voter."""
    core = leading()
    caught_up(core, 4)
    elsewhere = replace(voter(4), endpoints=core.q.voters.get(2).endpoints)
    error, message = add(core, elsewhere)
    assert error is E.invalid_request
    assert message.startswith("host:9002 is where node 2 with directory id ")
    assert core.q.voters.ids == (1, 2, 3)
    for _ in range(core.q.config.fetch_timeout_ms // 100 + 1):  # 2 is silent, and perhaps no more
        core.fetch_from(3, 3, 1)
        core.fetch_from(4, 3, 1)
        core.pass_ms(100)
    core.tell(VoterProbed(add(core, elsewhere), (0, 1)))
    caught_up(core, 4)
    assert core.q.voters.ids == (1, 2, 3, 4)


def test_no_set_is_left_that_could_not_commit_itself():
    """A healthy voter is removed by mistake while another is dead: that would be for ever."""
    core = leading()
    for _ in range(core.q.config.fetch_timeout_ms // 100 + 1):
        core.fetch_from(2, 3, 1)
        core.pass_ms(100)
    for who in (1, 2):
        error, message = remove(core, who)
        assert error is E.request_timed_out
        assert message.startswith("only 1 of the 2 voters that would be left fetch at present")
        assert message.endswith(f"node 3 with directory id {to_text(voter(3).key.directory_id)}")
    assert core.q.voters.ids == (1, 2, 3)
    removed(core, 3, 2)
    assert core.q.voters.ids == (1, 2)


def test_a_brokers_listener_is_no_voters(tmp_path):
    async def tell(cluster):
        leader = await upgraded(cluster)
        broker = cluster.members[4]
        server = await serve(
            real_env(1),
            ListenerConfig(name="BROKER", host="127.0.0.1", port=broker.port),
            HandlerTable([Api(ApiKey.FETCH, 4, 18, lambda request: None)]),
            features=lambda: FeatureView({"kraft.version": (0, 1)}, {}, -1),
        )
        try:
            error, message = await ask(cluster, ApiKey.ADD_RAFT_VOTER, broker, leader)
        finally:
            await server.close()
        assert (error, "no controller's listener" in message) == (E.invalid_request, True)

    scene(tmp_path, tell)


GOOD = ("CONTROLLER", "10.0.0.1", 9093)


@pytest.mark.parametrize("key", [ApiKey.ADD_RAFT_VOTER, ApiKey.UPDATE_RAFT_VOTER])
@pytest.mark.parametrize(
    ("listeners", "reason"),
    [
        ([GOOD, ("B", "host", 0)], "listener 'B': port 0; 1 to 65535 are allowed"),
        ([GOOD, ("B", "", 1)], "host '' of 0 characters"),
        ([("CONTROLLER", "a..b", 1)], "host 'a..b' of 4 characters is neither"),
        ([("CONTROLLER", "\0\0", 1)], "neither an address nor a host name"),
        ([("CONTROLLER", "x" * 64, 1)], "of 64 characters"),
        ([("CONTROLLER", "x." * 10_000, 1)], "of 20000 characters"),
        ([GOOD, ("", "host", 1)], "a name of 0 characters; 1 to 255"),
        ([GOOD, GOOD], "listener 'CONTROLLER' is given twice"),
        ([(f"L{i}", "host", 1) for i in range(33)], "33 listeners; a voter may have 32"),
        ([GOOD], None),
        ([("A", "::1", 1), ("B", "fe80::1%eth0", 1), ("C", "a_b.example.com.", 65535)], None),
    ],
)
def test_listeners_that_nobody_could_reach_are_refused(key, listeners, reason):
    asked = []
    config = SimpleNamespace(cluster_id="c")
    apis = VoterApis(config, lambda request, message: asked.append(message))
    (handle,) = [api.handle for api in apis.apis() if api.key == key]
    module = request_module(key, 0)
    entity = fill(
        module.AddRaftVoterRequest
        if key == ApiKey.ADD_RAFT_VOTER
        else module.UpdateRaftVoterRequest,
        cluster_id="c",
        timeout=millis(1),
        current_leader_epoch=1,
        voter_id=4,
        voter_directory_id=None,
        listeners=tuple(module.Listener(name=n, host=h, port=p) for n, h, p in listeners),
        **(
            {}
            if key == ApiKey.ADD_RAFT_VOTER
            else {
                "k_raft_version_feature": module.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                )
            }
        ),
    )
    request = SimpleNamespace(api_key=key, api_version=0, entity=lambda: entity)
    response = handle(request)
    if reason is None:
        assert len(asked) == 1
        return
    assert asked == []
    assert isinstance(response, response_class(key, 0))
    assert response.error_code is E.invalid_request
    if key == ApiKey.ADD_RAFT_VOTER:
        assert reason in response.error_message
