"""How each pair of a test's machines is connected, one way, and the process that carries it.

The switch (network_switch.py) and the proxy (network_proxy.py) are processes of their own, so that
a busy test delays no packet. They are told in lines of JSON on their standard input:

    {"links": [[from, to, {"cut": true}], ...]}    answered "ok" once it is so
    {"counts": true}                               answered with what was carried and lost

and end when that closes. Only the standard library is imported here.
"""

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Link:
    """One direction between two machines. `loss` is a share of packets; delays vary by
    `jitter_ms` either way, so that packets overtake each other; `bytes_per_s` 0: no limit."""

    cut: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    bytes_per_s: float = 0.0

    def delay_s(self, chance):
        """The delay of the next packet."""
        if not self.delay_ms and not self.jitter_ms:
            return 0.0
        spread = chance.uniform(-self.jitter_ms, self.jitter_ms)
        return max(0.0, self.delay_ms + spread) / 1000


CLEAR = Link()
CUT = Link(cut=True)


class Commands:
    """The process' side: the links as they are now, and the lines that change them."""

    def __init__(self):
        self.links = {}
        self.counts = Counter()
        self.ended = False
        self._read = b""

    def link(self, source, target):
        """The link between two machines; clear unless it was told otherwise."""
        return self.links.get((source, target), CLEAR)

    def readable(self):
        """Standard input has something: does what its whole lines say."""
        data = os.read(0, 1 << 16)
        self.ended = not data
        *lines, self._read = (self._read + data).split(b"\n")
        for line in lines:
            os.write(1, json.dumps(self._do(json.loads(line))).encode() + b"\n")

    def _do(self, command):
        if "counts" in command:
            return dict(sorted(self.counts.items()))
        for source, target, link in command["links"]:
            self.links[source, target] = Link(**link)
        return "ok"


def told(links):
    """The line that sets `links`: (source, target) -> Link."""
    rows = [[source, target, asdict(link)] for (source, target), link in sorted(links.items())]
    return json.dumps({"links": rows})
