RULE = "a coordinator loads all but the newest segment"
CAUGHT_BY = (
    "an acknowledged commit is neither lost nor goes back",
    "one owner of a partition in a generation",
)
SEEDS_MAX = 4


def install(replace):
    from broker import group_partition

    real = group_partition.read_part

    async def read_part(env, log, offset, end, max_bytes):
        if offset >= log.active.base_offset:
            return (await real(env, log, end, end, max_bytes))._replace(items=[], next_offset=end)
        return await real(env, log, offset, min(end, log.active.base_offset), max_bytes)

    replace(group_partition, "read_part", read_part)
