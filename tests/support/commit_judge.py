"""What members of a group said (`group_member`), judged: where each of them went on."""

from collections import defaultdict


class Progress:
    """All that members said about one topic, in the order in which they said it.

    `acknowledged` is each partition's last acknowledged commit, `takeovers` how often a partition
    that had one was given to somebody, `problems` what none of that may be: a place to go on other
    than what was committed, a record again or left out while a member had its partition, an
    acknowledged commit that another one undid.
    """

    def __init__(self, members):
        said = [(line["at"], n, line) for n, m in enumerate(members) for line in list(m.said)]
        self.acknowledged = {}
        self.takeovers = 0
        self.problems = []
        # Commits since the last acknowledged one whose outcome their member doesn't know.
        self._open = defaultdict(set)
        self._next = {}
        for at, who, line in sorted(said, key=lambda one: one[:2]):
            for partition in line.get("assigned", ()):
                self._next.pop((who, partition), None)
            for partition, offset, _ in line.get("got", ()):
                self._take(at, who, partition, offset)
            for partition, offset, _ in line.get("got", ()):
                self._open[partition].add(offset + 1)
            for partition, offset in line.get("committed", ()):
                self._acknowledge(at, who, partition, offset)

    def _take(self, at, who, partition, offset):
        committed = self.acknowledged.get(partition, 0)
        expected = self._next.get((who, partition))
        self._next[who, partition] = offset + 1
        if expected is not None:
            allowed = {expected}
        else:
            allowed = {committed} | {end for end in self._open[partition] if end > committed}
            self.takeovers += committed > 0
        if offset not in allowed:
            self.problems.append(
                f"{at:.3f}: member {who} reads {partition}@{offset}, committed {committed}, "
                f"its own next {expected}"
            )

    def _acknowledge(self, at, who, partition, offset):
        if offset < self.acknowledged.get(partition, 0):
            self.problems.append(
                f"{at:.3f}: member {who} commits {partition}@{offset} after "
                f"{self.acknowledged[partition]}"
            )
        self.acknowledged[partition] = offset
        self._open[partition].clear()
