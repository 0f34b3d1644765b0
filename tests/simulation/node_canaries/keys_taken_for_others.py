RULE = "a value is dropped for a newer one of another key"
CAUGHT_BY = ("the newest value of a key is kept",)
SEEDS_MAX = 3


def install(replace):
    from storage.cleaning import key_map

    real = key_map.blake2b
    replace(key_map, "blake2b", lambda key, digest_size: real(key[:5], digest_size=digest_size))
