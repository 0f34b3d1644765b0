"""Loaded by pytest in the process that runs kafka-python's tests: hands them a cluster.

Their fixtures take a broker that is there already from KAFKA_URI. The source distribution lacks one
module that they import, which starts processes and isn't called then.

Environment: FOREIGN_SOURCE is the folder of the sources, FOREIGN_ALLOWED a file with the tests to
run, a line each, FOREIGN_REPORT a file to write to: a JSON line `[test]` for each that is there,
and `[test, outcome, reason]` for each that has run.
"""

import json
import os
import sys
import types
from pathlib import Path

SOURCE = Path(os.environ["FOREIGN_SOURCE"])


class Service:
    """A process that somebody else has started."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        """It runs."""

    def close(self):
        """It goes on."""


def _tell(*what):
    with open(os.environ["FOREIGN_REPORT"], "a") as report:
        report.write(json.dumps(what) + "\n")


def _stand_in():
    """Makes their imports work, before pytest loads their conftest."""
    # The standard library has a package of this name, too.
    package = types.ModuleType("test")
    package.__path__ = [str(SOURCE / "test")]
    service = types.ModuleType("test.service")
    service.ExternalService = service.SpawnedService = Service
    sys.modules.update({"test": package, "test.service": service})


_stand_in()


def _name(nodeid):
    return nodeid.removeprefix("test/integration/")


def pytest_collection_modifyitems(config, items):
    allowed = set(Path(os.environ["FOREIGN_ALLOWED"]).read_text().splitlines())
    for item in items:
        _tell(_name(item.nodeid))
    left_out = [item for item in items if _name(item.nodeid) not in allowed]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if _name(item.nodeid) in allowed]


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _tell(_name(report.nodeid), report.outcome, report.longreprtext[-3000:])
