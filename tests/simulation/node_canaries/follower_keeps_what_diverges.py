RULE = "a follower is not told where its log leaves the leader's, and goes on behind it"
CAUGHT_BY = (
    "committed never changes",
    "a replica's high watermark never goes back",
    "log matching",
    "what a consumer saw stays",
    "a consumer's position never leaves the log",
    "acknowledged records are kept",
    "an idempotent producer's sequence is never lost",
    "a leader has all that was committed",
    "committed is in the log of every replica in sync",
    "the newest value of a key is kept",
    "an acknowledged record is where it was said to be",
    "an acknowledged commit is neither lost nor goes back",
    "one owner of a partition in a generation",
    "a committed offset covers only what was consumed",
)
SEEDS_MAX = 30


def install(replace):
    from broker.api_fetch import FetchJob

    replace(FetchJob, "_divergence", lambda self, replica, asked: None)
