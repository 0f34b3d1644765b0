RULE = "a replica out of sync is elected where none in sync is alive"
CAUGHT_BY = (
    "a replica's high watermark never goes back",
    "committed never changes",
    "leaders come from the ISR",
    "the leader is in sync",
    "a consumer's position never leaves the log",
    "what a consumer saw stays",
    "acknowledged records are kept",
    "an idempotent producer's sequence is never lost",
    "a leader has all that was committed",
    "the newest value of a key is kept",
    "an acknowledged record is where it was said to be",
    "an acknowledged commit is neither lost nor goes back",
    "one owner of a partition in a generation",
    "a committed offset covers only what was consumed",
)
SEEDS_MAX = 15


def install(replace):
    from controller import elections
    from controller.elections import Chosen

    real = elections.choose_leader

    def choose(replicas, isr, elr, current, acceptable, election, last_known=-1):
        chosen = real(replicas, isr, elr, current, acceptable, election, last_known)
        if chosen.leader < 0:
            for broker in replicas:
                if acceptable(broker):
                    return Chosen(broker)
        return chosen

    replace(elections, "choose_leader", choose)
