"""Free TCP ports for nodes that must know each other's addresses before they start."""

from __future__ import annotations

import random
import socket

# Below the range from which systems take the ports of outgoing connections (32768 on Linux), so
# that a node that is down for a while finds its port still free.
FIRST, LAST = 12000, 32000
# Prime to the number of ports: such steps visit each once. Shuffling them all takes longer than
# everything else that a cluster's command does before it starts the nodes.
STEP = 7919


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different ports on which nothing listens now."""
    held: list[socket.socket] = []
    try:
        start = random.SystemRandom().randrange(LAST - FIRST)
        for turn in range(LAST - FIRST):
            if len(held) == count:
                break
            port = FIRST + (start + turn * STEP) % (LAST - FIRST)
            candidate = socket.socket()
            try:
                candidate.bind((host, port))
            except OSError:
                candidate.close()
            else:
                held.append(candidate)
        if len(held) < count:
            raise OSError(f"only {len(held)} of {count} ports are free between {FIRST} and {LAST}")
        return [candidate.getsockname()[1] for candidate in held]
    finally:
        for candidate in held:
            candidate.close()
