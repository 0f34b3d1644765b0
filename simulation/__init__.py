"""The simulated world: members, networks and disks driven by one seed, and the checkers.

`raft_core` simulates the quorum core alone.
"""
