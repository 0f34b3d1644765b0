"""Groups of KIP-848's protocol: the coordinator assigns, members reconcile.

A group is a value (`group`), and a record of the log turns it into the next one (`replay`): the
same function for what was just decided as for what is loaded. Decisions (`heartbeats`, `leaving`,
`expressions`, `migration`) take a group and a request and answer with records; nothing else
changes a group. What is not in the log (sessions, revocations that are waited for) is `sessions`.

Three epochs: the group's rises when its members, their subscriptions or the topics change; the
assignment's follows when a target has been computed for that group epoch (`targets`, by an
assignor); a member's follows when it has given up what it must, so that others may have it
(`reconciliation`).
"""
