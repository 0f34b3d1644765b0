"""The quorum: a pure state machine that decides, and the shell that acts for it.

`core.QuorumCore` is the door of the pure half, `node.RaftNode` the shell's.
"""
