"""The group coordinator's decisions: groups and offsets of a `__consumer_offsets` partition.

A broker leads some of that topic's partitions and keeps one `GroupCoordinator` (`coordinator`) for
each. It is pure; the shell gives it what happened and does what it asks:

    coordinator = GroupCoordinator(settings, new_uuid, compile_regex)
    effects = coordinator.handle(event, now_ms, wall_ms)    # events.py, effects.py
    deadline = coordinator.next_deadline_ms()               # of the monotonic clock; None for never

`now_ms` is the monotonic clock's and serves timeouts; `wall_ms` is the wall clock's and serves what
is stored: commit times, retention.

The seam, as the shell must keep it:

- **Loading.** A new coordinator answers every request COORDINATOR_LOAD_IN_PROGRESS. The shell reads
  the log from its start to where it ends under this leadership and calls `replay(offset, key,
  value, producer_id)` for each record (`producer_id` is NO_PRODUCER outside transactions) and
  `end_transaction(producer_id, committed)` for each marker, in the log's order; then it hands in
  `Loaded`. `replay` takes any record of the topic, skips what it does not know and raises
  DecodeError on bytes that are not what they claim to be. Slices are the shell's matter.
- **Appends.** `Append(token, records)` asks for one atomic batch. The shell appends in the order of
  the effects and tells each outcome: `Appended(token, log_end)`, or `AppendFailed(token, error)`,
  which undoes this append and all later ones that were not yet told as appended. It may hand in
  further events before it tells (and so join several appends in one batch); tokens rise by one.
- **State runs ahead, answers do not.** A change is in force from its `Append` on, so that the next
  event is judged by it. Answers that rest on state of the log are held until `Committed` says that
  the high watermark has reached the log end of the last append before them; one that changes
  nothing while nothing is uncommitted is given at once. `list`, `describe` and `fetch` read what is
  committed and are never held, but for a fetch with `require_stable`.
- **Resigned** answers all who wait NOT_COORDINATOR; the object is not used any more.
- **Answers.** Each request has a `caller`, the shell's own token, and gets exactly one
  `Answer(caller, value)`, with the value's type named in the request's text. A caller that is gone
  still gets one; the shell drops it. Values know no API versions: what older versions say
  otherwise is the shell's translation.

A group id is of one type at a time: classic (`classic`, the protocol of JoinGroup) or consumer
(`consumer_*`, KIP-848). Offsets (`offsets`) hang on the id, whatever its type.
"""
