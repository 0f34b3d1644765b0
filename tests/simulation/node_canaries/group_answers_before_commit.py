RULE = "a coordinator takes what it has appended for committed"
CAUGHT_BY = (
    "an acknowledged commit is neither lost nor goes back",
    "one owner of a partition in a generation",
    "a committed offset covers only what was consumed",
)
SEEDS_MAX = 20


def install(replace):
    from broker.group_partition import GroupPartition
    from broker.groups.events import Appended, Committed

    real = GroupPartition._tell

    def tell(self, event):
        real(self, event)
        if isinstance(event, Appended):
            real(self, Committed(event.log_end))

    replace(GroupPartition, "_tell", tell)
