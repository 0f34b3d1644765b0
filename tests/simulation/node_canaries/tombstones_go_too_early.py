RULE = "a tombstone is dropped by the second pass that meets it, whatever its time"
CAUGHT_BY = ("tombstones are kept for their time",)
SEEDS_MAX = 6


def install(replace):
    from storage.cleaning import filtering

    replace(filtering, "_horizon_is_over", lambda header, now_ms: header.has_delete_horizon)
