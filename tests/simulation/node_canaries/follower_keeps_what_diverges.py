RULE = "a follower is not told where its log leaves the leader's, and goes on behind it"
CAUGHT_BY = (
    "log matching",
    "what a consumer saw stays",
)
SEEDS_MAX = 15


def install(replace):
    from broker.api_fetch import FetchJob

    replace(FetchJob, "_divergence", lambda self, replica, asked: None)
