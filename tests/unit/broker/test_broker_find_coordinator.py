"""FindCoordinator tells every client, in every version, that there is no coordinator."""

from types import SimpleNamespace

import pytest

from broker import api_find_coordinator
from wire.apis import ApiKey, ErrorCode
from wire.messages import (
    decode_response,
    encode_response,
    fill,
    request_class,
)

NONE = ErrorCode.coordinator_not_available


def ask(version: int, **fields: object) -> object:
    entity = fill(request_class(ApiKey.FIND_COORDINATOR, version), **fields)
    request = SimpleNamespace(api_version=version, entity=lambda: entity)
    answer = api_find_coordinator._handle(request)
    frame = encode_response(ApiKey.FIND_COORDINATOR, version, 7, answer)
    return decode_response(ApiKey.FIND_COORDINATOR, version, memoryview(frame)[4:])[1]


@pytest.mark.parametrize("version", range(4))
def test_one_key(version):
    answer = ask(version, key="g", key_type=1)
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (NONE, -1, "", -1)
    if version >= 1:
        expected = "a transactional id"
        assert answer.error_message.endswith(expected)


@pytest.mark.parametrize("version", range(4, 7))
def test_many_keys(version):
    answer = ask(version, coordinator_keys=("a", "b"), key_type=0)
    assert [(one.key, one.error_code) for one in answer.coordinators] == [("a", NONE), ("b", NONE)]


def test_an_unknown_kind_of_key():
    answer = ask(6, coordinator_keys=("a",), key_type=9)
    assert answer.coordinators[0].error_code is ErrorCode.invalid_request
    assert "9" in answer.coordinators[0].error_message
