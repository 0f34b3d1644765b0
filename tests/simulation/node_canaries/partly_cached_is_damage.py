RULE = "what is in memory in part only is read from the disk, and no damage"
CAUGHT_BY = ("only what was damaged is called damaged",)
SEEDS_MAX = 12


def install(replace):
    from raft.records_server import RecordsServer

    serve = RecordsServer.serve

    def broken(self, response, offset, max_bytes, answer):
        part = self._log.log.read(offset, max_bytes)
        data = None if part is None else part.file.pread_nowait(part.length, part.position)
        if data is not None and len(data) < part.length:
            self._give(response, offset, part, data, answer)
        else:
            serve(self, response, offset, max_bytes, answer)

    replace(RecordsServer, "serve", broken)
