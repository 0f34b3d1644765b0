RULE = "acks=all is answered when the leader alone has the record"
CAUGHT_BY = (
    "acknowledged records are kept",
    "what a consumer saw stays",
    "an idempotent producer's sequence is never lost",
    "an acknowledged record is where it was said to be",
    "a consumer's position never leaves the log",
    "the newest value of a key is kept",
    "an acknowledged commit is neither lost nor goes back",
    "one owner of a partition in a generation",
    "a committed offset covers only what was consumed",
)
SEEDS_MAX = 15


def install(replace):
    from broker.api_produce import ProduceJob

    real = ProduceJob.answer

    def answer(self):
        self._waits.clear()
        real(self)

    replace(ProduceJob, "answer", answer)
