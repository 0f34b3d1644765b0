RULE = "a voter that may have forgotten a later leader confirms the reads of an earlier one"
SEEDS_FROM = 2_120  # one in two thousand tells it
SEEDS_MAX = 4_000


def install(replace):
    from raft import serving

    replace(serving, "UNKNOWN_END", None)
