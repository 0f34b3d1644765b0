RULE = "a broker that comes back after losing power is still counted in sync"
CAUGHT_BY = (
    "a fenced broker leads nothing",
    "a consumer's position never leaves the log",
    "what a consumer saw stays",
    "an idempotent producer's sequence is never lost",
    "log matching",
    "a leader has all that was committed",
    "committed is in the log of every replica in sync",
    "leaders come from the ISR",
    "acknowledged records are kept",
    "the newest value of a key is kept",
    "an acknowledged record is where it was said to be",
    "an acknowledged commit is neither lost nor goes back",
    "one owner of a partition in a generation",
    "a committed offset covers only what was consumed",
)
SEEDS_MAX = 20


def install(replace):
    from controller import fencing

    replace(fencing, "leave_partitions", lambda *args, **more: iter(()))
