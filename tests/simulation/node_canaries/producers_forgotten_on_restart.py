RULE = "a broker forgets at a restart which sequences it has from whom"
CAUGHT_BY = (
    "an idempotent producer's sequence is never lost",
    "a record is there once",
    "an acknowledged record is where it was said to be",
)
SEEDS_MAX = 80


def install(replace):
    from storage.producers import ProducerState

    def replay(self, header, marker=None):
        self.end_offset = header.next_offset

    replace(ProducerState, "replay", replay)
    replace(ProducerState, "load", lambda self, producers, end: setattr(self, "end_offset", end))
