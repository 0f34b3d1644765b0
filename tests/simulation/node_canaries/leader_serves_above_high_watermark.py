RULE = "consumers are given records that are not committed"
CAUGHT_BY = ("consumers read below the high watermark",)
SEEDS_MAX = 15


def install(replace):
    from broker.api_fetch import FetchJob

    real = FetchJob._read

    def read(self, replica, asked, first):
        mark = replica.core.high_watermark
        found = real(self, replica, asked, first)
        if self._asked.replica_id >= 0 or asked.fetch_offset < mark:
            return found
        kept, replica.core.high_watermark = mark, replica.log.end_offset
        try:
            return real(self, replica, asked, False)._replace(high_watermark=kept)
        finally:
            replica.core.high_watermark = kept

    replace(FetchJob, "_read", read)
