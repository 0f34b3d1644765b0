"""What a broker loads of groups is told in one line, however many partitions it leads."""

import pytest

from broker.group_loading import LoadReport
from world.memory import memory_env


class Log:
    def __init__(self):
        self.lines = []

    def info(self, event, **fields):
        self.lines.append((event, fields))


@pytest.fixture
def told():
    return Log()


@pytest.fixture
def report(told):
    return LoadReport(memory_env(), told)


def test_one_line_for_all(report, told):
    for partition in range(3):
        report.begins(partition)
    for partition in range(3):
        assert told.lines == []
        report.loaded(partition, 10, 1000)
    fields = {"partitions": 3, "records": 30, "bytes": 3000, "took_ms": 0}
    assert told.lines == [("groups_loaded", fields)]
    report.begins(7)
    report.loaded(7, 1, 70)
    fields = {"partition": 7, "partitions": 1, "records": 1, "bytes": 70, "took_ms": 0}
    assert told.lines[1:] == [("groups_loaded", fields)]


def test_a_partition_that_cannot_be_loaded_holds_up_no_line(report, told):
    report.begins(0)
    report.begins(1)
    report.loaded(0, 1, 10)
    assert told.lines == []
    report.ends(1)
    assert [fields["partition"] for _, fields in told.lines] == [0]
    # Let go again, as when its leader is another.
    report.ends(1)
    report.begins(1)
    report.ends(1)
    assert len(told.lines) == 1
