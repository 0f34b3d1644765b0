RULE = "how far the metadata log is durable is written, and never synced"
CAUGHT_BY = ("a synced offset is durable a second later",)
SEEDS_MAX = 6


def install(replace):
    from raft.hardening import Hardening

    replace(Hardening, "moved", lambda self: None)
