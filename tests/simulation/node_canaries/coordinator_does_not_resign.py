RULE = "a broker goes on coordinating groups whose partition another one leads"
CAUGHT_BY = ("who isn't the coordinator doesn't answer as if it were",)
SEEDS_MAX = 3


def install(replace):
    from broker.group_coordinator import GroupCoordinators

    replace(GroupCoordinators, "_goes_on", lambda self, led, partition: True)
