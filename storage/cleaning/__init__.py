"""The log cleaner: compaction of one log, pass by pass (`cleanup.policy=compact`).

A pass reads the dirty part of a log, which no pass has seen yet, into a map of each key's newest
offset (`key_map`), and then writes every segment up to the map's end again without the records
that a newer one replaces (`filtering`, `transactions`). Segments that became small are joined
(`groups`). A new segment is complete and durable before it takes the place of the old ones
(`output`, then `Log.replace_segments`), so that a crash at any moment leaves either of them.
`dirt` says what a pass would be about, `work` does it.
"""
