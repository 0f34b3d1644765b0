RULE = "the controller takes ISR changes from leaders of epochs gone by, of replicas gone since"
CAUGHT_BY = (
    "leaders come from the ISR",
    "the leader is in sync",
    "a leader has all that was committed",
)
SEEDS_MAX = 20


def install(replace):
    from controller import api_alter_partition

    replace(api_alter_partition, "_broken_rule", lambda *args: None)
