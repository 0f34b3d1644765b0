RULE = "the controller takes ISR changes from leaders of epochs gone by, of replicas gone since"
CAUGHT_BY = (
    "committed is in the log of every replica in sync",
    "a replica's high watermark never goes back",
    "a fenced broker leads nothing",
    "leaders come from the ISR",
    "the leader is in sync",
    "a leader has all that was committed",
    "a consumer's position never leaves the log",
    "what a consumer saw stays",
    "acknowledged records are kept",
    "an idempotent producer's sequence is never lost",
    "ISR within the replicas",
    "the partition epoch rises",
    "the newest value of a key is kept",
    "an acknowledged record is where it was said to be",
    "an acknowledged commit is neither lost nor goes back",
    "one owner of a partition in a generation",
    "a committed offset covers only what was consumed",
)
SEEDS_MAX = 40


def install(replace):
    from controller import api_alter_partition

    replace(api_alter_partition, "_broken_rule", lambda *args: None)
