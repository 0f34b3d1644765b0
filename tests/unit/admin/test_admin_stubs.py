import subprocess
import sys
from pathlib import Path

import pytest

from admin.stubs import admin_pb2 as pb
from wire.errors import ErrorCode

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_stubs_are_what_the_definitions_give(tmp_path):
    pytest.importorskip("grpc_tools")
    script = ROOT / "scripts" / "generate-stubs"
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=600)
    made = sorted(path.name for path in (tmp_path / "admin" / "stubs").iterdir())
    assert made == ["admin_pb2.py", "admin_pb2.pyi", "admin_pb2_grpc.py"]
    for name in made:
        fresh = (tmp_path / "admin" / "stubs" / name).read_text()
        assert fresh == (ROOT / "admin" / "stubs" / name).read_text(), f"run {script}"


def test_the_service_has_the_methods_it_promises():
    service = pb.DESCRIPTOR.services_by_name["Admin"]
    assert service.full_name == "pykraft.admin.v1.Admin"
    promised = (
        "CreateTopics DeleteTopics ListTopics DescribeTopics CreatePartitions DescribeConfigs "
        "AlterConfigs DescribeCluster DescribeQuorum AddVoter RemoveVoter ElectLeaders "
        "AlterPartitionReassignments ListPartitionReassignments DescribeClientQuotas "
        "AlterClientQuotas DescribeFeatures UpdateFeatures UnregisterBroker Watch"
    )
    assert sorted(service.methods_by_name) == sorted(promised.split())


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("CreateTopicsRequest", "topics validate_only timeout_ms"),
        ("NewTopic", "name partitions replication_factor assignments configs"),
        ("CreateTopicsResponse", "results"),
        ("CreateTopicResult", "name topic_id error"),
        ("DeleteTopicsRequest", "names timeout_ms"),
        ("DeleteTopicResult", "name error"),
        ("DescribeTopicsRequest", "names linearizable"),
        ("DescribeTopicsResponse", "metadata_offset topics"),
        ("DescribeQuorumResponse", "leader_id leader_epoch high_watermark voters observers"),
        ("WatchRequest", "from_offset snapshot_first"),
        ("WatchResponse", "offset epoch timestamp_ms type version json"),
        ("KafkaError", "code name message"),
    ],
)
def test_messages_that_others_rely_on(message, fields):
    found = pb.DESCRIPTOR.message_types_by_name[message].fields
    assert [field.name for field in found] == fields.split()
    assert [field.number for field in found] == list(range(1, len(found) + 1))


def test_every_code_has_a_name_and_a_status():
    from admin.errors import message_of, status_of

    for code in ErrorCode:
        message = message_of(code)
        if code == ErrorCode.none:
            assert message is None
        else:
            assert message.name == code.name.upper()
            assert status_of(code).value[0] > 0
