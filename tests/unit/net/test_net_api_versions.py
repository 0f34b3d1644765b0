import struct

import pytest

from net.api_versions import ApiVersionsAnswers, FeatureView
from net.handlers import Api, HandlerTable
from wire.errors import DecodeError, ErrorCode
from wire.messages import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    fill,
    request_class,
)

VIEW = FeatureView({"metadata.version": (7, 25), "kraft.version": (0, 1)}, {"metadata.version": 25})


def handle(request):
    raise AssertionError("never called")


TABLE = HandlerTable(
    [Api(3, 0, 12, handle), Api(0, 3, 11, handle, advertised_min=0), Api(1, 4, 17, handle)]
)


def ask(version, view=VIEW, *, name="client", software="1.0", form=None):
    answers = ApiVersionsAnswers(TABLE, lambda: view)
    entity = fill(
        request_class(18, version), client_software_name=name, client_software_version=software
    )
    frame = memoryview(encode_request(RequestHeader(18, version, 9, "me"), entity))[4:]
    header, offset = decode_request_header(frame)
    answer, named = answers.answer(header, frame, offset)
    assert struct.unpack_from(">i", answer)[0] == len(answer) - 4
    number, response = decode_response(18, version if form is None else form, answer[4:])
    assert number == 9
    return response, named


@pytest.mark.parametrize("version", range(5))
def test_every_version_says_what_the_table_has(version):
    response, named = ask(version)
    assert response.error_code == ErrorCode.none
    rows = [(k.api_key, k.min_version, k.max_version) for k in response.api_keys]
    assert rows == [(0, 0, 11), (1, 4, 17), (3, 0, 12), (18, 0, 4)]
    assert named == (("client", "1.0") if version >= 3 else None)


@pytest.mark.parametrize("version", [3, 4])
def test_features(version):
    response, _ = ask(version, FeatureView(VIEW.supported, VIEW.finalized, 77))
    supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
    assert supported == (VIEW.supported if version == 4 else {"metadata.version": (7, 25)})
    assert response.finalized_features_epoch == 77
    assert [
        (f.name, f.max_version_level, f.min_version_level) for f in response.finalized_features
    ] == [("metadata.version", 25, 25)]


def test_finalized_features_are_left_out_while_unknown():
    response, _ = ask(4)
    assert response.finalized_features_epoch == -1
    assert response.finalized_features == ()


@pytest.mark.parametrize("body", [b"", b"\x00", b"anything at all"])
@pytest.mark.parametrize("version", [5, 99, 32767])
def test_a_version_above_ours_is_answered_in_version_0(version, body):
    answers = ApiVersionsAnswers(TABLE, lambda: VIEW)
    frame = memoryview(struct.pack(">hhih", 18, version, 4, -1) + b"\x00" + body)
    header, offset = decode_request_header(frame)
    answer, _ = answers.answer(header, frame, offset)
    number, response = decode_response(18, 0, answer[4:])
    assert number == 4
    assert response.error_code == ErrorCode.unsupported_version
    assert [(k.api_key, k.min_version, k.max_version) for k in response.api_keys] == [(18, 0, 4)]


@pytest.mark.parametrize("bad", ["", "-a", "a-", "a b", "a\n", "ä"])
def test_software_names_are_checked(bad):
    for given in ({"name": bad}, {"software": bad}):
        response, named = ask(3, **given)
        assert response.error_code == ErrorCode.invalid_request
        assert response.api_keys == ()
        assert named is None


def test_a_malformed_body_is_refused():
    answers = ApiVersionsAnswers(TABLE, lambda: VIEW)
    frame = memoryview(struct.pack(">hhih", 18, 3, 4, -1) + b"\x00\x05ab")
    header, offset = decode_request_header(frame)
    with pytest.raises(DecodeError):
        answers.answer(header, frame, offset)


def test_a_changed_view_is_seen_at_once():
    views = [FeatureView(finalized={"metadata.version": 7}, finalized_epoch=1)]
    answers = ApiVersionsAnswers(TABLE, lambda: views[0])
    frame = memoryview(struct.pack(">hhih", 18, 4, 4, -1) + b"\x00\x02a\x021\x00")
    header, offset = decode_request_header(frame)
    for level in (7, 8, 8):
        views[0] = FeatureView(finalized={"metadata.version": level}, finalized_epoch=level)
        answer, _ = answers.answer(header, frame, offset)
        _, response = decode_response(18, 4, answer[4:])
        assert response.finalized_features[0].max_version_level == level
