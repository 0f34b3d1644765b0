RULE = "acks=all is answered when the leader alone has the record"
CAUGHT_BY = (
    "acknowledged records are kept",
    "what a consumer saw stays",
    "an idempotent producer's sequence is never lost",
    "an acknowledged record is where it was said to be",
    "a consumer's position never leaves the log",
)
SEEDS_MAX = 15


def install(replace):
    from broker.api_produce import ProduceJob

    real = ProduceJob.answer

    def answer(self):
        self._waits.clear()
        real(self)

    replace(ProduceJob, "answer", answer)
