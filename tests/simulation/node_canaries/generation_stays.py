RULE = "a rebalance begins no new generation"
CAUGHT_BY = ("one owner of a partition in a generation",)
SEEDS_MAX = 2


def install(replace):
    from broker.groups.classic_group import ClassicGroup

    real = ClassicGroup.next_generation

    def next_generation(self):
        before = self.generation
        real(self)
        self.generation = max(before, 1)

    replace(ClassicGroup, "next_generation", next_generation)
