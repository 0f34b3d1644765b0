"""Scenes of dynamic membership for the tests of KIP-853, on the bare core."""

from dataclasses import replace
from uuid import UUID

from core_rig import NONE, Core, key, log, records

from raft import effects as fx
from raft.effects import ElectionState
from raft.events import RequestReceived, ResponseReceived, VoterProbed
from raft.messages import (
    AddVoterRequest,
    BeginEpochRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeResponse,
)
from raft.voters import MembershipRecord, ReplicaKey, Voter, VoterSet
from wire.errors import ErrorCode

TIMED_OUT = ErrorCode.request_timed_out


def voter(node_id, *, disk=0, port=None, levels=(0, 1)):
    """A voter as the log has it; `disk` counts the disks that its node has had."""
    directory_id = UUID(int=key(node_id).directory_id.int + 1000 * disk)
    place = ("host", 9000 + node_id if port is None else port)
    return Voter(ReplicaKey(node_id, directory_id), {"CONTROLLER": place}, *levels)


def voters(*ids):
    return VoterSet(one if isinstance(one, Voter) else voter(one) for one in ids)


def bootstrap(*ids):
    """What the snapshot 0-0 of a formatted quorum says."""
    return MembershipRecord(-1, 1, voters(*ids))


def at(offset, *ids):
    """A VotersRecord in the log."""
    return MembershipRecord(offset, None, voters(*ids))


def dynamic(ids=(1, 2, 3), *, node_id=1, **rest):
    """A core of a quorum with kraft.version 1, freshly formatted."""
    return Core(
        0, node_id=node_id, own=rest.pop("own", voter(node_id)), found=[bootstrap(*ids)], **rest
    )


def leading(ids=(1, 2, 3), **rest):
    """Node 1 leads, with everything committed: LeaderChange, kraft.version, voters at 0 to 2."""
    core = dynamic(ids, **rest)
    if len(ids) == 1:
        core.pass_ms(1)
    else:
        core.win()
    core.sync()
    for node_id in ids[1:]:
        core.fetch_from(node_id, 3, core.q.epoch)
    assert core.q.high_watermark == 3
    return core


def following(ids=(1, 2, 3), **rest):
    """A node that follows leader 2 in epoch 1 and has its log to the end."""
    core = dynamic(ids, **rest)
    core.follow(2, 1)
    core.fetched(records=records(0, (1, 3)), high_watermark=0)
    core.sync()
    core.fetched(high_watermark=3)
    return core


def later_leader(own=None):
    """Node 1 leads epoch 2 of a quorum that had a leader before; nothing of it is committed."""
    found = [at(2, 1, 2, 3)._replace(kraft_version=1)]
    core = Core(0, own=own or voter(1), found=found, log=log((1, 3)), stored=ElectionState(1))
    core.win()
    return core


def caught_up(core, node_id):
    """Node `node_id` fetches, as an observer, at the end of the log."""
    core.fetch_from(node_id, core.q.log.end, core.q.epoch)


def ask(core, request):
    """Bring a change in; its answer as (error, message) if it came at once, else its token."""
    core.tokens += 1
    core.tell(RequestReceived(core.tokens, request))
    return answer(core, core.tokens) or core.tokens


def answer(core, token):
    """The answer to a change that the last event brought, None if it brought none."""
    for effect in core.of(fx.SendResponse):
        if effect.token == token:
            assert isinstance(effect.response, VoterChangeResponse)
            return effect.response.error, effect.response.message
    return None


def add(core, who, *, timeout_ms=5000, until_committed=True):
    """AddRaftVoter for a node, without its range of kraft.version, as a request has it."""
    who = who if isinstance(who, Voter) else voter(who)
    bare = replace(who, min_kraft_version=0, max_kraft_version=0)
    return ask(core, AddVoterRequest(bare, timeout_ms, until_committed))


def probed(core, token, levels=(0, 1)):
    """The node to be added answers ApiVersions; (error, message) if that ends the change."""
    core.tell(VoterProbed(token, levels))
    return answer(core, token)


def remove(core, who):
    return ask(core, RemoveVoterRequest(who if isinstance(who, ReplicaKey) else voter(who).key))


def removed(core, who, *answering):
    """RemoveRaftVoter, and the voters that answer the announcements that follow; its token."""
    token = remove(core, who)
    for node_id in answering:
        core.hear_announced(node_id)  # one may have been under way
        core.hear_announced(node_id)
    return token


def update(core, who, *, epoch=None):
    return ask(core, UpdateVoterRequest(core.q.epoch if epoch is None else epoch, who))


def commit(core, *ids):
    """Everything is synced here and fetched by these followers."""
    core.sync()
    for node_id in ids:
        core.fetch_from(node_id, core.q.log.end, core.q.epoch)


def told(core, error=NONE, message=None):
    """The leader answers what we have told it as a voter."""
    slot = core.q.role.voter_slot
    response = VoterChangeResponse(error, core.q.leader_id, core.q.epoch, message)
    return core.tell(ResponseReceived(core.q.leader_id, slot.in_flight, response))


def begin(leader_id, epoch, address=None):
    return BeginEpochRequest(None, leader_id, epoch, address)
