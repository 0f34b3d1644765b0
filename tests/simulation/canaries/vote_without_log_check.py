RULE = "a vote is given to a candidate whose log is behind"
SEEDS_MAX = 20


def install(replace):
    from raft import elections

    replace(elections, "_is_up_to_date", lambda q, request: True)
