"""Faults of links and processes, drawn from a seed and put on a running cluster."""

import random
import signal
import threading
import time
from collections import Counter

from networks import CLIENTS, Link

LATE = Link(delay_ms=50, jitter_ms=30, loss=0.02)
VERY_LATE = Link(delay_ms=150, jitter_ms=120, loss=0.05)
NARROW = Link(bytes_per_s=40_000)


def wait(seconds):
    """A fault lasts so long."""
    threading.Event().wait(seconds)


class Mischief:
    """Puts one fault after the other on a cluster; several may be there at once.

    Any fault may meet any other: none of them takes what a node has written, so whatever was
    acknowledged must be there in the end. Every other one lasts `patience_s`: that
    should be more than a session and the time to step down, so that others take over. `done`
    counts faults, `story` tells them.
    """

    def __init__(self, cluster, seed, patience_s):
        self.cluster = cluster
        self._patience_s = patience_s
        self.done = Counter()
        self.story = []
        self._network = cluster.network
        self._chance = random.Random(seed)
        self._begin = time.monotonic()

    def run(self, seconds):
        """Makes trouble for `seconds`; heals nothing at the end."""
        end = time.monotonic() + seconds
        kinds = {
            self._isolate: 4,
            self._pair: 4,
            self._rooms: 2,
            self._no_clients: 2,
            self._weather: 2,
            self._narrow: 1,
            self._flap: 2,
            self._kill: 2,
            self._stop: 2,
        }
        while time.monotonic() < end:
            # A cluster without any rest shows nothing.
            if self._chance.random() < 0.4:
                self._tell("heal")
                self.cluster.heal()
            else:
                self._chance.choices(list(kinds), list(kinds.values()))[0]()
            lasts_s = self._chance.choice((self._chance.uniform(0.1, 1.0), self._patience_s))
            wait(min(lasts_s, max(0.0, end - time.monotonic())))

    def _tell(self, kind, *details):
        self.done[kind] += 1
        at = time.monotonic() - self._begin
        self.story.append(f"{at:6.1f} s {kind} {' '.join(map(str, details))}")

    def _cut(self, kind, sources, targets):
        way = self._chance.choice(("both ways", "to", "from"))
        self._tell(kind, sources, way, targets)
        if way == "from":
            sources, targets = targets, sources
        self._network.cut(sources, targets, both=way == "both ways")

    def _isolate(self):
        """A broker or the active controller from all others; clients still reach it."""
        node = self._chance.choice(self.cluster.brokers)
        if self._chance.random() < 0.5:
            claims = self.cluster.claims_to_be_active
            node = next((id_ for id_ in self.cluster.controllers if claims(id_)), node)
        self._cut("isolate", [node], [id_ for id_ in self.cluster.ids() if id_ != node])

    def _pair(self):
        one, other = self._chance.sample(self.cluster.ids(), 2)
        self._cut("cut a pair", [one], [other])

    def _rooms(self):
        """One broker from the controllers, or from the other brokers."""
        broker = self._chance.choice(self.cluster.brokers)
        rooms = (self.cluster.controllers, [id_ for id_ in self.cluster.brokers if id_ != broker])
        self._cut("cut a broker off", [broker], self._chance.choice(rooms))

    def _no_clients(self):
        self._cut("cut clients off", [CLIENTS], [self._chance.choice(self.cluster.ids())])

    def _weather(self):
        """Every link."""
        link = self._chance.choice((LATE, VERY_LATE))
        self._tell("late", link)
        self._network.shape(self._network.machines, self._network.machines, link)

    def _narrow(self):
        node = self._chance.choice(self.cluster.ids())
        self._tell("narrow", node)
        self._network.shape([node], self._network.machines, NARROW)

    def _flap(self):
        """A node comes and goes, quicker than anybody's patience."""
        node = self._chance.choice(self.cluster.ids())
        others = [id_ for id_ in self.cluster.ids() if id_ != node]
        self._tell("flap", node)
        for _ in range(self._chance.randint(2, 5)):
            self._network.cut([node], others)
            wait(self._chance.uniform(0.05, 0.6))
            self._network.shape([node], others, Link())
            wait(self._chance.uniform(0.05, 0.3))

    def _kill(self):
        self._signal("kill -9", signal.SIGKILL)

    def _stop(self):
        self._signal("stop", signal.SIGSTOP)

    def _signal(self, kind, number):
        node = self._chance.choice(self.cluster.ids())
        process = self.cluster.process(node)
        if process is not None:
            self._tell(kind, node)
            process.send_signal(number)
            if number == signal.SIGKILL:
                process.wait(120)
