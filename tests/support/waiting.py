"""Waiting for a condition, with a deadline; never for a fixed time."""

import threading
import time

# Limits are written for a machine with nothing else to do, and are there to end what hangs: a
# machine that runs several clusters at once is given this many times as long. What has to be quick
# measures how long it took.
PATIENCE = 4


class NotInTime(AssertionError):
    """The condition did not hold before the deadline; says what was last seen."""


def wait_until(condition, what, timeout_s=30.0, every_s=0.02, errors=()):
    """Calls `condition` until it returns something true, and returns that.

    `errors` are the exceptions that mean "not yet". Raises NotInTime, naming `what` and the last
    answer, when PATIENCE times `timeout_s` are over.
    """
    timeout_s *= PATIENCE
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        try:
            last = condition()
            if last:
                return last
        except errors as error:
            last = error
        if time.monotonic() > deadline:
            raise NotInTime(f"not after {timeout_s:g} s: {what} (last: {last!r:.500})")
        pause.wait(every_s)
