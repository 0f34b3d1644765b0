"""The exit codes of a node process, all in one place so that none means two things.

0 is a controlled shutdown, 1 a configuration or start that a rule refuses, 2 a command line that
can't be parsed; a process ended by a signal shows that signal. docs/operations.md says for each
what to do.
"""

from __future__ import annotations

from typing import Final

EXIT_BAD_DIRECTORY: Final = 4
EXIT_CANNOT_LISTEN: Final = 5
EXIT_NOT_REGISTERED: Final = 6
EXIT_LOG_DIRECTORY_FAILED: Final = 7
EXIT_BROKER_TASK_FAILED: Final = 8
EXIT_UNSUPPORTED_LEVEL: Final = 12
EXIT_UNREADABLE_LOG: Final = 13
EXIT_NO_BOOTSTRAP: Final = 14
EXIT_PROTOCOL_BROKEN: Final = 20
EXIT_LOG_DAMAGED: Final = 21
EXIT_METADATA_DISK_FAILED: Final = 22
EXIT_NO_EPOCH_LEFT: Final = 23

MEANINGS: Final = {
    EXIT_BAD_DIRECTORY: "a log directory is not formatted, locked, damaged, of another node or "
    "cluster",
    EXIT_CANNOT_LISTEN: "the system refused something at start: a taken address, a file",
    EXIT_NOT_REGISTERED: "no controller registered the broker in initial.broker.registration."
    "timeout.ms",
    EXIT_LOG_DIRECTORY_FAILED: "no log directory of the broker is left, or its failure could not "
    "be reported to a controller",
    EXIT_BROKER_TASK_FAILED: "a background task of the broker failed by a fault of ours",
    EXIT_UNSUPPORTED_LEVEL: "a feature level in the metadata log is above what this version knows",
    EXIT_UNREADABLE_LOG: "a committed metadata record can't be decoded",
    EXIT_NO_BOOTSTRAP: "an empty metadata log and no usable bootstrap.checkpoint",
    EXIT_PROTOCOL_BROKEN: "another member broke a rule of the quorum, such as a leader without "
    "what is committed",
    EXIT_LOG_DAMAGED: "the metadata log or quorum-state is damaged and can't be healed from others",
    EXIT_METADATA_DISK_FAILED: "the disk under the metadata log failed",
    EXIT_NO_EPOCH_LEFT: "the quorum is in the last epoch that there is, and its leader is gone",
}
