RULE = "a broker is fenced, and leads what it led"
CAUGHT_BY = ("a fenced broker leads nothing",)
SEEDS_MAX = 5


def install(replace):
    from controller import fencing
    from metadata.records import BrokerRegistrationChangeRecord
    from metadata.records.types import FENCE

    def fence(context, broker):
        yield BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, fenced=FENCE
        )

    replace(fencing, "fence", fence)
