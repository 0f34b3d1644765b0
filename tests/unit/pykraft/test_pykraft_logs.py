"""Log lines when the disk under the log is full."""

import errno
import json

from pykraft.logs import LogSink


class Disk:
    """Takes `room` bytes, then refuses."""

    def __init__(self):
        self.data, self.room = b"", 10**6

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data[: self.room]
        self.data += taken
        self.room -= len(taken)
        return len(taken)


def test_a_line_that_finds_no_room_is_counted_and_told_when_there_is_some():
    disk = Disk()
    sink = LogSink(disk.write)
    sink.write('{"event": "a"}\n')
    disk.room = 5
    for name in "bcd":
        sink.write(f'{{"event": "{name}"}}\n')
    disk.room = 10**6
    sink.write('{"event": "e"}\n')
    sink.flush()
    whole, cut, told, last = disk.data.decode().splitlines()
    assert [json.loads(line)["event"] for line in (whole, told, last)] == [
        "a", "log_lines_lost", "e"
    ]  # fmt: skip
    assert cut == '{"eve', "what got there before stays on a line of its own"
    assert json.loads(told)["count"] == 3


def test_no_room_for_long_loses_lines_and_nothing_else():
    disk = Disk()
    disk.room = 0
    sink = LogSink(disk.write)
    for number in range(1000):
        sink.write(f'{{"event": "{number}"}}\n')
    disk.room = 30  # not enough to tell of them
    sink.write('{"event": "x"}\n')
    disk.room = 10**6
    sink.write('{"event": "y"}\n')
    told = [json.loads(line) for line in disk.data.decode().splitlines()[1:]]
    assert [line["event"] for line in told] == ["log_lines_lost", "y"]
    assert told[0]["count"] == 1001
