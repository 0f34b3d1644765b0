"""Replay rules, inner indexes, snapshots, deltas and transactions of the image."""

import random
from uuid import UUID

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from metadata_samples import History

from metadata.delta import ImageDelta
from metadata.image import EMPTY, MetadataImage
from metadata.loader import ImageLoader
from metadata.records import decode, encode, encode_at
from metadata.records import types as t
from metadata.snapshot import records_of, slices_of, values_of
from metadata.state import digest, quota_text, state_json
from wire.control import ControlType, Endpoint, Voter, decode_control, encode_voters
from wire.errors import FatalError
from wire.exits import EXIT_UNREADABLE_LOG

TOPIC = UUID(int=500)
MV = t.FeatureLevelRecord(name="metadata.version", feature_level=25)


def build(*records, start: MetadataImage = EMPTY) -> MetadataImage:
    for record in records:
        start = start.apply(record)
    return start


def one_partition(**values) -> MetadataImage:
    record = t.PartitionRecord(
        **{
            "partition_id": 0,
            "topic_id": TOPIC,
            "replicas": (1, 2, 3),
            "isr": (1, 2, 3),
            "leader": 1,
            "leader_epoch": 5,
            "partition_epoch": 7,
        }
        | values
    )
    return build(t.TopicRecord(name="t", topic_id=TOPIC), record)


def change(image: MetadataImage, **values):
    image = image.apply(t.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, **values))
    return image.partition("t", 0)


def test_unstated_leader_keeps_the_leader_epoch() -> None:
    after = change(one_partition(), isr=(1, 2))
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 5, 8)
    assert after.isr == (1, 2)


@pytest.mark.parametrize("leader", [-1, 1, 2])
def test_a_stated_leader_raises_the_leader_epoch(leader) -> None:
    after = change(one_partition(), leader=leader)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (leader, 6, 8)
    assert after.isr == (1, 2, 3)


def test_recovery_state_elr_and_reassignment() -> None:
    image = one_partition()
    after = change(
        image,
        leader_recovery_state=1,
        eligible_leader_replicas=(2,),
        last_known_elr=(3,),
        adding_replicas=(4,),
        removing_replicas=(1,),
        replicas=(4, 2, 3, 1),
    )
    assert after.leader_recovery_state == 1
    assert (after.elr, after.last_known_elr) == ((2,), (3,))
    assert after.reassigning
    assert after.replicas == (4, 2, 3, 1)
    assert after.preferred_leader == 4
    cleared = change(one_partition(adding_replicas=(4,)), adding_replicas=())
    assert not cleared.reassigning


def test_directories() -> None:
    ids = (UUID(int=101), UUID(int=102), UUID(int=103))
    assert one_partition(directories=ids).partition("t", 0).directory_of(2) == ids[1]
    zeros = (UUID(int=0),) * 3
    assert one_partition(directories=zeros).partition("t", 0).directories == ()
    assert change(one_partition(), directories=ids).directories == ids
    assert change(one_partition(directories=ids), isr=(1,)).directories == ids
    assert one_partition().partition("t", 0).directory_of(1) is None


def test_removing_a_topic_takes_its_configs_along() -> None:
    config = t.ConfigRecord(resource_type=2, resource_name="t", name="a", value="1")
    other = t.ConfigRecord(resource_type=4, resource_name="", name="a", value="1")
    image = build(config, other, start=one_partition())
    assert dict(image.topic_config("t")) == {"a": "1"}
    image = image.apply(t.RemoveTopicRecord(topic_id=TOPIC))
    assert image.topic("t") is None
    assert image.topic_by_id(TOPIC) is None
    assert list(image.configs) == [(4, "")]
    assert not image.partitions_by_broker
    assert image.leader_count(1) == 0


def test_a_null_config_value_removes_the_key_and_at_last_the_resource() -> None:
    def config(name, value):
        return t.ConfigRecord(resource_type=4, resource_name="1", name=name, value=value)

    image = build(config("a", "1"), config("b", "2"), config("a", None))
    assert dict(image.config(4, "1")) == {"b": "2"}
    assert not image.apply(config("b", None)).configs
    assert image.apply(config("x", None)).configs == image.configs


def test_level_zero_removes_a_feature() -> None:
    image = build(MV, t.FeatureLevelRecord(name="group.version", feature_level=1))
    assert image.metadata_version == 25
    image = image.apply(t.FeatureLevelRecord(name="group.version", feature_level=0))
    assert dict(image.features) == {"metadata.version": 25}
    assert EMPTY.metadata_version == 1


def test_broker_changes() -> None:
    directory = UUID(int=1001)
    register = t.RegisterBrokerRecord(broker_id=1, broker_epoch=9, log_dirs=(directory,))

    def changed(**values):
        return t.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, **values)

    image = build(register)
    assert image.broker(1).fenced
    assert not image.broker(1).active
    image = image.apply(changed(fenced=-1))
    assert image.broker(1).active
    assert build(changed(), start=image).broker(1) == image.broker(1)
    leaving = image.apply(changed(in_controlled_shutdown=1)).broker(1)
    assert leaving.in_controlled_shutdown
    assert not leaving.fenced
    assert not leaving.active
    moved = image.apply(changed(log_dirs=(UUID(int=1002),))).broker(1)
    assert moved.log_dirs == (UUID(int=1002),)
    assert not moved.has_online_dir(directory)
    assert moved.has_online_dir(UUID(int=1))
    assert not moved.has_online_dir(UUID(int=2))
    cordoned = image.apply(changed(cordoned_log_dirs=(directory,)))
    assert cordoned.broker(1).cordoned_log_dirs == (directory,)
    assert image.apply(t.FenceBrokerRecord(id=1, epoch=9)).broker(1).fenced
    assert not build(register, t.UnfenceBrokerRecord(id=1, epoch=9)).broker(1).fenced
    gone = image.apply(t.UnregisterBrokerRecord(broker_id=1, broker_epoch=9))
    assert gone.broker(1) is None


def test_clearing_eligible_leader_replicas() -> None:
    image = one_partition(eligible_leader_replicas=(2,), last_known_elr=(3,))
    for name in ("", "t"):
        after = image.apply(t.ClearElrRecord(topic_name=name)).partition("t", 0)
        assert (after.elr, after.last_known_elr) == ((), ())
        assert (after.partition_epoch, after.leader_epoch) == (8, 5)
    assert image.apply(t.ClearElrRecord(topic_name="other")) == image
    plain = one_partition()
    assert plain.apply(t.ClearElrRecord(topic_name="")) == plain


def test_records_about_nothing_change_nothing() -> None:
    unknown = UUID(int=9)
    for record in (
        t.PartitionRecord(partition_id=0, topic_id=unknown),
        t.PartitionChangeRecord(partition_id=0, topic_id=unknown),
        t.PartitionChangeRecord(partition_id=9, topic_id=TOPIC),
        t.RemoveTopicRecord(topic_id=unknown),
        t.UnregisterBrokerRecord(broker_id=5, broker_epoch=1),
        t.FenceBrokerRecord(id=5, epoch=1),
        t.BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=1, fenced=1),
        t.RemoveAccessControlEntryRecord(id=unknown),
        t.RemoveUserScramCredentialRecord(name="x", mechanism=1),
        t.RemoveDelegationTokenRecord(token_id="x"),
        t.NoOpRecord(),
        decode(b"\x01\x63\x00x").record,
    ):
        assert one_partition().apply(record) == one_partition()


def test_a_taken_topic_name_goes_to_the_newer_topic() -> None:
    image = one_partition().apply(t.TopicRecord(name="t", topic_id=UUID(int=501)))
    assert image.topic("t").id == UUID(int=501)
    assert image.topic_by_id(TOPIC) is None
    assert image.leader_count(1) == 0
    assert one_partition().apply(t.TopicRecord(name="t", topic_id=TOPIC)) == one_partition()
    renamed = one_partition().apply(t.TopicRecord(name="u", topic_id=TOPIC))
    assert renamed.topic("t") is None


def naive_indexes(image: MetadataImage):
    held, leaderless, counts = {}, {}, {}
    for topic_id, topic in image.topics_by_id.items():
        for index, partition in topic.partitions.items():
            for broker in partition.replicas:
                held.setdefault(broker, {}).setdefault(topic_id, {})[index] = None
            if partition.leader == -1:
                leaderless.setdefault(topic_id, {})[index] = None
            else:
                counts[partition.leader] = counts.get(partition.leader, 0) + 1
    return held, leaderless, counts


def plain_sets(held):
    return {topic_id: dict(indexes.items()) for topic_id, indexes in held.items()}


@examples(20)
@given(st.integers(0, 2**32))
def test_inner_indexes_follow_from_the_topics(seed) -> None:
    history = History(seed)
    image = EMPTY
    for _ in range(5):
        for record in history.take(60):
            image = image.apply(record)
        held, leaderless, counts = naive_indexes(image)
        assert {n: plain_sets(held) for n, held in image.partitions_by_broker.items()} == held
        assert plain_sets(image.topics.leaderless) == leaderless
        assert dict(image.topics.leader_counts) == counts
        assert {x.id: x for x in image.topics_by_name.values()} == dict(image.topics_by_id.items())
        for broker in held:
            listed = [(topic.id, index) for topic, index in image.partitions_of_broker(broker)]
            assert listed == sorted((x, n) for x, found in held[broker].items() for n in found)
        assert len(list(image.leaderless_partitions())) == sum(map(len, leaderless.values()))


def image_again(image: MetadataImage) -> MetadataImage:
    again = EMPTY
    for value in values_of(image):
        again = again.apply(decode(value).record)
    return again._replace(
        last_offset=image.last_offset,
        last_epoch=image.last_epoch,
        last_timestamp_ms=image.last_timestamp_ms,
    )


@examples(20)
@given(st.integers(0, 2**32), st.sampled_from([1, 7, 16, 17, 22, 25]))
def test_an_image_written_as_records_is_the_same_image(seed, level) -> None:
    history = History(seed)
    history.take(300)
    lowered = t.FeatureLevelRecord(name="metadata.version", feature_level=level)
    image = history.image.apply(MV).apply(lowered)
    again = image_again(image)
    # A snapshot sorts what has no order of its own (a broker's endpoints).
    assert state_json(again) == state_json(image)
    assert image_again(again) == again
    assert list(records_of(again)) == list(records_of(image))


def cut(values, rng):
    """Random batches of a value list."""
    position = 0
    while position < len(values):
        size = rng.choice((1, 1, 2, 7, 50))
        yield position, values[position : position + size]
        position += size


def with_transactions(records, rng):
    """The records with transactions around some, and what is left once aborted ones are out."""
    written, kept = [], []
    position = 0
    while position < len(records):
        some = records[position : position + rng.randrange(1, 20)]
        position += len(some)
        kind = rng.choice(("plain", "plain", "end", "abort"))
        if kind == "plain":
            written += some
            kept += some
        elif kind == "end":
            written += [t.BeginTransactionRecord(name="x"), *some, t.EndTransactionRecord()]
            kept += some
        else:
            written += [t.BeginTransactionRecord(), *some, t.AbortTransactionRecord(reason="r")]
    return written, kept


@examples(25)
@given(st.integers(0, 2**32))
def test_every_cut_into_batches_gives_the_same_image(seed) -> None:
    rng = random.Random(seed)
    records = [r for r in History(seed).take(200) if getattr(r, "name", "") != "group.version"]
    written, kept = with_transactions(records, rng)
    values = [encode_at(record, 25) for record in written]
    expected = build(*kept).at(len(values) - 1, 3, 1000)
    for _ in range(3):
        loader = ImageLoader()
        for offset, batch in cut(values, rng):
            before = loader.image
            delta = loader.on_batch(offset, 3, 1000, batch)
            assert delta.previous is before
            assert delta.image is loader.image
            check_delta(delta)
        assert loader.image == expected
        assert not loader.in_transaction


def changed_keys(before, after):
    return {k: None for k in [*before, *after] if before.get(k) != after.get(k)}


def compare(previous, image) -> ImageDelta:
    """The change between two images as it shows when both are looked at."""
    delta = ImageDelta(previous, image)
    before, after = previous.topics_by_id, image.topics_by_id
    delta.topics_deleted = {i: before[i].name for i in before if i not in after}
    for topic_id in after:
        old, new = before.get(topic_id), after[topic_id]
        if old is None or old.partitions != new.partitions:
            known = {} if old is None else old.partitions
            delta.topics_changed[topic_id] = changed_keys(known, new.partitions)
    for part in ("brokers", "controllers", "configs"):
        changed = changed_keys(getattr(previous, part), getattr(image, part))
        setattr(delta, f"{part}_changed", changed)
    for part in ("features", "quotas", "scram", "acls", "tokens"):
        setattr(delta, f"{part}_changed", getattr(previous, part) != getattr(image, part))
    delta.producer_ids_changed = previous.next_producer_id != image.next_producer_id
    return delta


def check_delta(delta) -> None:
    """What really changed is named in the delta (which may name more)."""
    real = compare(delta.previous, delta.image)
    for topic_id, indexes in real.topics_changed.items():
        assert indexes.keys() <= delta.topics_changed[topic_id].keys()
    assert real.topics_deleted == delta.topics_deleted
    assert all(topic_id in delta.image.topics_by_id for topic_id in delta.topics_changed)
    assert real.brokers_changed.keys() <= delta.brokers_changed.keys()
    assert real.controllers_changed.keys() <= delta.controllers_changed.keys()
    assert real.configs_changed.keys() <= delta.configs_changed.keys()
    for flag in ("features", "quotas", "scram", "acls", "tokens", "producer_ids"):
        name = f"{flag}_changed"
        assert getattr(delta, name) or not getattr(real, name)
    if delta.empty:
        assert real.empty


@examples(15)
@given(st.integers(0, 2**32))
def test_snapshot_and_log_lead_to_the_same_image(seed) -> None:
    records = [r for r in History(seed).take(200) if getattr(r, "name", "") != "group.version"]
    values = [encode_at(record, 25) for record in records]
    whole, late = ImageLoader(), ImageLoader()
    whole.on_batch(0, 1, 50, values[:100])
    delta = late.on_snapshot(100, 1, 50, values_of(whole.image))
    assert delta.full
    assert not delta.empty
    assert delta.topics_changed == {}, "there may be a million: a reader looks at the image"
    real = compare(delta.previous, delta.image)
    assert delta.brokers_changed.keys() == real.brokers_changed.keys()
    assert delta.features_changed == real.features_changed
    for loader in (whole, late):
        loader.on_batch(100, 2, 60, values[100:])
    assert state_json(late.image) == state_json(whole.image)
    assert late.image.last_offset == whole.image.last_offset == len(values) - 1


def test_a_snapshot_in_slices_is_published_at_its_end() -> None:
    history = History(4)
    history.take(300)
    image = history.image.apply(t.FeatureLevelRecord(name="group.version", feature_level=0))
    loader = ImageLoader()
    load = loader.start_snapshot(10, 2, 99)
    values = list(values_of(image))
    for position, batch in cut(values, random.Random(1)):
        assert loader.image == EMPTY, position
        load.add(batch)
    load.finish()
    assert state_json(loader.image) == state_json(image)
    assert loader.image.last_offset == 9
    assert (loader.image.last_epoch, loader.image.last_timestamp_ms) == (2, 99)


@examples(60)
@given(st.integers(0, 2**32), st.booleans())
def test_a_load_gives_what_applying_one_after_the_other_gives(seed, shuffled) -> None:
    """Also of records that no snapshot has, in an order that none has."""
    records = [r for r in History(seed).take(250) if type(r) is not t.FeatureLevelRecord]
    if shuffled:
        random.Random(seed).shuffle(records)
    values = [encode_at(record, 25) for record in records]
    one_by_one = build(*(decode(value).record for value in values)).at(10, 2, 99)
    loader = ImageLoader()
    load = loader.start_snapshot(11, 2, 99)
    for _, batch in cut(values, random.Random(seed)):
        load.add(batch)
    load.finish()
    assert loader.image.topics == one_by_one.topics
    assert loader.image == one_by_one


def test_the_slices_of_a_snapshot_are_small_whatever_is_in_it() -> None:
    records: list = [MV]
    for number in range(3):
        topic_id = UUID(int=7000 + number)
        records.append(t.TopicRecord(name=f"t{number}", topic_id=topic_id))
    for index in range(6_000):  # more than is sorted at once
        records.append(t.PartitionRecord(partition_id=index, topic_id=UUID(int=7001)))
    for number in range(5_500):
        records.append(
            t.TopicRecord(name=f"u{number % 97}-{number}", topic_id=UUID(int=10**6 + number))
        )
    image = build(*records)
    slices = list(slices_of(image))
    assert max(map(len, slices)) <= 128
    assert [value for part in slices for value in part] == list(values_of(image))
    names = [record.name for record, _ in records_of(image) if isinstance(record, t.TopicRecord)]
    assert names == sorted(image.topics_by_name)
    indexes = [r.partition_id for r, _ in records_of(image) if isinstance(r, t.PartitionRecord)]
    assert indexes == list(range(6_000))


def test_an_open_transaction_publishes_what_came_before_it() -> None:
    loader = ImageLoader()
    topic = t.TopicRecord(name="t", topic_id=TOPIC)
    batch = [encode(record) for record in (MV, t.BeginTransactionRecord(), topic)]
    delta = loader.on_batch(0, 1, 10, batch)
    assert delta.features_changed
    assert not delta.topics_changed
    assert loader.in_transaction
    assert loader.image.last_offset == -1
    delta = loader.on_batch(3, 1, 11, [encode(t.NoOpRecord())])
    assert delta.empty
    delta = loader.on_batch(4, 1, 12, [encode(t.EndTransactionRecord())])
    assert list(delta.topics_changed) == [TOPIC]
    assert loader.image.topic("t") is not None
    assert loader.image.last_offset == 4


def test_control_records_set_voters_and_move_the_offset() -> None:
    loader = ImageLoader()
    endpoint = Endpoint("CONTROLLER", "localhost", 9093)
    voters = [Voter(n, UUID(int=900 + n), (endpoint,), 0, 1) for n in (2, 1)]
    control = decode_control(*encode_voters(voters))
    delta = loader.on_batch(0, 1, 10, (), [(control.type, control.entity)])
    assert delta.voters_changed
    assert loader.image.voters == ((1, UUID(int=901)), (2, UUID(int=902)))
    assert loader.image.last_offset == 0
    loader.on_batch(1, 1, 10, (), [(ControlType.LEADER_CHANGE, None)])
    assert loader.image.last_offset == 1
    state = state_json(loader.image)
    assert state["voters"] == [
        [1, "AAAAAAAAAAAAAAAAAAADhQ"],
        [2, "AAAAAAAAAAAAAAAAAAADhg"],
    ]
    loader.on_snapshot(9, 1, 10, [], kraft_version=1, voters=[(3, UUID(int=903))])
    assert (loader.image.kraft_version, loader.image.voters) == (1, ((3, UUID(int=903)),))


def test_voters_change_within_a_transaction_and_stay_when_it_is_aborted() -> None:
    endpoint = Endpoint("CONTROLLER", "localhost", 9093)
    control = decode_control(*encode_voters([Voter(7, UUID(int=907), (endpoint,), 0, 1)]))
    for last in (t.EndTransactionRecord(), t.AbortTransactionRecord(reason="x")):
        loader = ImageLoader()
        loader.on_batch(0, 1, 10, [encode(t.BeginTransactionRecord())])
        loader.on_batch(1, 1, 10, (), [(control.type, control.entity)])
        loader.on_batch(2, 1, 10, [encode(last)])
        assert loader.image.voters == ((7, UUID(int=907)),)


def test_a_level_beyond_ours_stops_the_node_and_names_both() -> None:
    loader = ImageLoader()
    beyond = t.FeatureLevelRecord(name="metadata.version", feature_level=30)
    with pytest.raises(FatalError, match=r"30 \(4.3-IV0\).*29 \(4.2-IV1\)"):
        loader.on_batch(0, 1, 1, [encode(beyond)])
    assert loader.image == EMPTY
    unknown = t.FeatureLevelRecord(name="nobody.version", feature_level=1)
    with pytest.raises(FatalError, match=r"nobody.version at level 1; .* 0 to 0"):
        loader.on_snapshot(5, 1, 1, [encode(unknown)])


def test_an_undecodable_record_stops_the_node_with_its_offset() -> None:
    with pytest.raises(FatalError, match="offset 8, epoch 2") as caught:
        ImageLoader().on_batch(7, 2, 1, [encode(MV), b"\x01\x02\x00"])
    assert caught.value.exit_code == EXIT_UNREADABLE_LOG


def test_unknown_records_are_counted_and_passed_over() -> None:
    loader = ImageLoader()
    loader.on_batch(0, 1, 1, [b"\x01\x63\x00x"])
    assert (loader.unknown_records, loader.image.last_offset) == (1, 0)


def test_state_of_rare_parts() -> None:
    acl = t.AccessControlEntryRecord(
        id=UUID(int=1000),
        resource_type=2,
        resource_name="n",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=2,
        permission_type=3,
    )
    entity = (
        t.QuotaEntity(entity_type="user", entity_name="u"),
        t.QuotaEntity(entity_type="client-id", entity_name=None),
    )
    image = build(
        acl,
        t.ClientQuotaRecord(entity=entity, key="request_percentage", value=12.5, remove=False),
        t.UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"a", stored_key=b"b", server_key=b"c", iterations=4096
        ),
        t.ZkMigrationStateRecord(zk_migration_state=0),
        t.ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=3000),
    )
    state = state_json(image)
    assert state["acls"]["AAAAAAAAAAAAAAAAAAAD6A"] == {
        "ResourceType": 2,
        "ResourceName": "n",
        "PatternType": 3,
        "Principal": "User:a",
        "Host": "*",
        "Operation": 2,
        "PermissionType": 3,
    }
    key = (("client-id", None), ("user", "u"))
    assert list(state["quotas"]) == [quota_text(key)]
    assert state["scram"] == {
        "u/1": [
            "secret:ca978112ca1b",
            "secret:3e23e8160039",
            "secret:2e7d2c03a950",
            4096,
        ]
    }
    assert (state["zkMigrationState"], state["nextProducerId"]) == (0, 3000)
    assert digest(state) == digest(state_json(image_again(image)))
    assert len(digest(state)) == 64
