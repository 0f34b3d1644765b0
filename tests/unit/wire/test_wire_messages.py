from __future__ import annotations

import contextlib
import io
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader
from kio.serial import entity_writer as kio_writer
from wire_entities import ALL_MESSAGES, crowded_entities, random_entity, smallest_entity

from wire import messages
from wire.apis import FLEXIBLE_FROM, ApiKey, is_flexible
from wire.errors import DecodeError
from wire.messages import RequestHeader, fill, millis

NEWEST = [(key, max(schema_name_map[name])) for key, name in api_key_map.items()]
OLDEST = [(key, min(schema_name_map[name])) for key, name in api_key_map.items()]


def classes(key: int, version: int) -> list[type]:
    return [messages.request_class(key, version), messages.response_class(key, version)]


def test_api_keys_and_flexible_versions_are_those_of_the_schemas() -> None:
    assert {int(key): key.name.lower() for key in ApiKey} == dict(api_key_map)
    for key, version in ALL_MESSAGES:
        for cls in classes(key, version):
            assert cls.__flexible__ == is_flexible(key, version), (key, version)
    assert set(FLEXIBLE_FROM) <= {int(key) for key in ApiKey}


@pytest.mark.parametrize("seed", range(2))
def test_every_message_of_every_version_decodes_as_kio_has_it(seed: int) -> None:
    chance = random.Random(seed)
    for key, version in ALL_MESSAGES:
        for cls in classes(key, version):
            entity = random_entity(cls, chance)
            body = messages.encode_body(entity)
            decoded = messages.decode_body(cls, memoryview(bytearray(body)))
            assert decoded == entity_reader(cls)(body, 0)[0] == entity, cls
            with pytest.raises(DecodeError, match="trailing"):
                messages.decode_body(cls, body + b"\x00")


@pytest.mark.parametrize("seed", range(2))
def test_every_message_of_every_version_is_encoded_as_kio_does_it(seed: int) -> None:
    chance = random.Random(seed)
    for key, version in ALL_MESSAGES:
        for cls in classes(key, version):
            for entity in (random_entity(cls, chance), smallest_entity(cls)):
                expected = io.BytesIO()
                kio_writer(cls)(expected, entity)
                assert messages.encode_body(entity) == expected.getvalue(), entity


def test_lengths_of_more_than_a_byte_are_encoded_as_kio_does_it() -> None:
    cls = messages.request_class(ApiKey.HEARTBEAT, 4)
    for length in (126, 127, 128, 16_382, 16_383, 16_384, 1 << 21):
        entity = cls(group_id="g" * length, generation_id=1, member_id="m", group_instance_id=None)
        expected = io.BytesIO()
        kio_writer(cls)(expected, entity)
        body = messages.encode_body(entity)
        assert body == expected.getvalue()
        assert messages.decode_body(cls, body) == entity


@pytest.mark.parametrize("key,version", sorted({*NEWEST, *OLDEST}))
def test_a_message_cut_anywhere_is_refused(key: int, version: int) -> None:
    for cls in classes(key, version):
        body = messages.encode_body(random_entity(cls, random.Random(7)))
        for length in range(0, len(body), 1 + len(body) // 150):
            with pytest.raises(DecodeError):
                messages.decode_body(cls, body[:length])


SPREAD = [(0, 9), (1, 4), (1, 18), (3, 0), (3, 13), (18, 3), (19, 7), (44, 1), (52, 2), (62, 4)]


@given(st.sampled_from(SPREAD), st.booleans(), st.binary(max_size=200))
def test_random_bytes_only_ever_raise_decode_errors(
    api: tuple[int, int], response: bool, data: bytes
) -> None:
    with contextlib.suppress(DecodeError):
        messages.decode_body(classes(*api)[response], data)
    with contextlib.suppress(DecodeError):
        messages.decode_request_header(data)
    with contextlib.suppress(DecodeError):
        messages.decode_response(*api, data)


@given(st.sampled_from(ALL_MESSAGES), st.integers(0, 2**32), st.data())
def test_altered_messages_only_ever_raise_decode_errors(
    api: tuple[int, int], seed: int, data: st.DataObject
) -> None:
    cls = classes(*api)[seed & 1]
    body = bytearray(messages.encode_body(random_entity(cls, random.Random(seed))))
    for _ in range(data.draw(st.integers(1, 4)) if body else 0):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        messages.decode_body(cls, bytes(body))


def test_a_huge_array_length_is_refused_before_anything_is_allocated() -> None:
    legacy = struct.pack(">iiiibi", -1, 500, 1, 1000, 0, 2**31 - 1)
    with pytest.raises(DecodeError, match="array"):
        messages.decode_body(messages.request_class(ApiKey.FETCH, 4), legacy)
    with pytest.raises(DecodeError, match="array"):
        messages.decode_body(
            messages.request_class(ApiKey.METADATA, 9), b"\xff\xff\xff\xff\x07" + bytes(20)
        )


def test_nulls_where_the_schema_has_none_are_refused() -> None:
    fetch = struct.pack(">iiiibi", -1, 500, 1, 1000, 0, -1)
    with pytest.raises(DecodeError, match="null"):
        messages.decode_body(messages.request_class(ApiKey.FETCH, 4), fetch)
    # a null topic name in CreateTopics v7
    with pytest.raises(DecodeError, match="null"):
        messages.decode_body(
            messages.request_class(ApiKey.CREATE_TOPICS, 7), b"\x02\x00" + bytes(20)
        )


def test_unknown_tagged_fields_are_skipped() -> None:
    body = b"\x00\x01\x01\x01" + b"\x02" + b"\x05\x03abc" + b"\x63\x00"
    entity = messages.decode_body(messages.request_class(ApiKey.METADATA, 9), body)
    assert entity.topics is None
    assert entity.allow_auto_topic_creation is True
    with pytest.raises(DecodeError, match="past the end"):
        messages.decode_body(messages.request_class(ApiKey.METADATA, 9), body[:5] + b"\x05\x7fabc")


def test_unknown_error_codes_are_read_as_unknown_errors() -> None:
    cls = messages.response_class(ApiKey.HEARTBEAT, 4)
    body = struct.pack(">ih", 0, 9999) + b"\x00"
    assert messages.decode_body(cls, body).error_code is ErrorCode.unknown_server_error


def decode_frame(frame: memoryview) -> Any:
    header, offset = messages.decode_request_header(frame)
    return messages.decode_request(header, frame, offset)


@pytest.mark.parametrize("client_id", [None, "", "client-ä"])
@pytest.mark.parametrize("version", [8, 9])
def test_request_frames(client_id: str | None, version: int) -> None:
    header = RequestHeader(ApiKey.METADATA, version, -5, client_id)
    entity = fill(
        messages.request_class(ApiKey.METADATA, version),
        topics=None,
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
        no_such_field=1,
    )
    frame = messages.encode_request(header, entity)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    view = memoryview(frame)[4:]
    decoded, offset = messages.decode_request_header(view)
    assert decoded == header
    assert messages.decode_request(decoded, view, offset) == entity
    for length in range(len(view)):
        with pytest.raises(DecodeError):
            decode_frame(view[:length])


def test_headers_of_newer_versions_and_unknown_keys() -> None:
    head = struct.pack(">hhih", 18, 99, 1, 1) + b"c\x01\x05\x02ab"
    assert messages.decode_request_header(head) == (RequestHeader(18, 99, 1, "c"), len(head))
    with pytest.raises(DecodeError, match="unknown API key"):
        messages.decode_request_header(struct.pack(">hhih", 999, 0, 1, -1))
    with pytest.raises(DecodeError, match="negative version"):
        messages.decode_request_header(struct.pack(">hhih", 3, -1, 1, -1))
    with pytest.raises(DecodeError, match="no version 99"):
        messages.decode_request(RequestHeader(18, 99, 1, "c"), head, len(head))


@pytest.mark.parametrize("version", range(5))
def test_api_versions_responses_have_the_old_header(version: int) -> None:
    entity = random_entity(messages.response_class(18, version), random.Random(1))
    frame = messages.encode_response(18, version, 77, entity)
    assert frame[4:8] == struct.pack(">i", 77)
    assert frame[8:] == messages.encode_body(entity)
    assert messages.decode_response(18, version, frame[4:]) == (77, entity)


def test_response_frames_of_both_header_versions() -> None:
    for version in (8, 9):
        entity = random_entity(messages.response_class(3, version), random.Random(2))
        frame = messages.encode_response(3, version, 1, entity)
        assert messages.decode_response(3, version, memoryview(frame)[4:]) == (1, entity)
        with pytest.raises(DecodeError, match="trailing"):
            messages.decode_response(3, version, frame[4:] + b"x")


def test_fill_serves_nested_classes_and_all_versions() -> None:
    for version in range(4, 19):
        module = messages.request_module(ApiKey.FETCH, version)
        part = fill(
            module.FetchPartition,
            partition=1,
            fetch_offset=2,
            partition_max_bytes=3,
            log_start_offset=4,
            current_leader_epoch=5,
            last_fetched_epoch=6,
        )
        assert part.fetch_offset == 2
        request = fill(
            messages.request_class(ApiKey.FETCH, version),
            replica_id=-1,
            max_wait=millis(500),
            min_bytes=1,
            topics=(),
            forgotten_topics_data=(),
        )
        assert messages.decode_body(type(request), messages.encode_body(request)) == request


def test_values_out_of_range_are_not_encoded() -> None:
    cls = messages.request_class(ApiKey.HEARTBEAT, 0)
    entity = cls(group_id="g", generation_id=2**31, member_id="m")
    with pytest.raises(struct.error):
        messages.encode_body(entity)


def test_nothing_is_encoded_where_a_value_must_be_and_none_is() -> None:
    for version in (0, 4):
        cls = messages.request_class(ApiKey.HEARTBEAT, version)
        entity = fill(cls, group_id=None, generation_id=1, member_id="m", group_instance_id=None)
        with pytest.raises(TypeError):
            messages.encode_body(entity)


def test_a_text_too_long_for_its_length_is_not_encoded() -> None:
    cls = messages.request_class(ApiKey.HEARTBEAT, 0)
    entity = cls(group_id="g" * (1 << 15), generation_id=1, member_id="m")
    with pytest.raises(struct.error):
        messages.encode_body(entity)


def test_modules_are_cached_and_missing_versions_are_named() -> None:
    assert messages.request_module(3, 9) is messages.request_module(3, 9)
    for function in (messages.request_module, messages.response_class):
        with pytest.raises(DecodeError, match="no version 55 of API 3"):
            function(3, 55)
        with pytest.raises(DecodeError, match="API 5000"):
            function(5000, 0)


@pytest.mark.parametrize("key", sorted({key for key, _ in ALL_MESSAGES}))
def test_a_message_holds_as_many_elements_as_are_allowed(key: int) -> None:
    """Counted over the whole message: what is one too many is refused before it is decoded."""
    allowed = 30
    newest = max(version for one, version in ALL_MESSAGES if one == key)
    for cls in (messages.request_class(key, newest), messages.response_class(key, newest)):
        for entity in crowded_entities(cls, allowed):
            body = messages.encode_body(entity)
            assert messages.decode_body(cls, body, 0, allowed) == entity
            with pytest.raises(DecodeError, match=f"may hold {allowed - 1} array elements"):
                messages.decode_body(cls, body, 0, allowed - 1)


def test_too_many_elements_are_refused_with_their_number_and_place() -> None:
    """Three megabytes of Vote would hold up a controller for seconds, and cost it its office."""
    topics = 1_000_000
    body = b"\x00" + struct.pack(">i", -1) + b"\xc1\x84\x3d" + b"\x01\x01\x00" * topics + b"\x00"
    with pytest.raises(
        DecodeError, match=r"byte 5: 1000000 elements after 0 others; .* hold 1000 "
    ):
        messages.decode_body(messages.request_class(52, 2), body, 0, 1000)


def test_tagged_fields_count_as_elements() -> None:
    body = b"\x00" + struct.pack(">i", -1) + b"\x01" + b"\x1e" + b"\x63\x00" * 30
    messages.decode_body(messages.request_class(52, 2), body, 0, 30)
    with pytest.raises(DecodeError, match="30 elements after 0 others"):
        messages.decode_body(messages.request_class(52, 2), body, 0, 29)
    header = struct.pack(">hhih", 52, 2, 1, -1) + b"\xff\x01" + b"\x63\x00" * 255
    with pytest.raises(DecodeError, match="255 tagged fields in a header, at most 100"):
        messages.decode_request_header(header)
