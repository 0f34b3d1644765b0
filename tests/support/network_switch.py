"""A switch in a process: IP packets between the TUN devices of a test's machines.

    network_switch.py SEED MACHINE=FD [MACHINE=FD ...]

A packet is read from the device of the machine that sent it and written to the device of the one
whose number is its address' last byte: lost, late, out of order or one at a time, as the link
between the two says. The machines' own kernels do the rest: connections wait, send again and give
up as they do over a bad wire. It does what tc's netem does, which not every kernel has.
"""

import heapq
import os
import random
import select
import sys
import time

from network_links import Commands

PACKETS_AT_ONCE = 32
PACKET_MAX = 1 << 16
# A slow link's queue: what comes later is lost, as in any switch.
QUEUE_MAX_S = 0.5


class Switch(Commands):
    """`devices` are open TUN devices by their machine's number."""

    def __init__(self, devices, chance):
        super().__init__()
        self._devices = devices
        self._chance = chance
        self._late = []  # (when, number, device, packet), a heap
        self._number = 0
        self._free_at = {}  # when a slow link has sent what it was given

    def run(self):
        """Until standard input ends."""
        poller = select.epoll()
        poller.register(0, select.EPOLLIN)
        machines = {device: machine for machine, device in self._devices.items()}
        for device in machines:
            os.set_blocking(device, False)
            poller.register(device, select.EPOLLIN)
        while not self.ended:
            for device, _ in poller.poll(self._timeout_s()):
                if device == 0:
                    self.readable()
                else:
                    self._from(machines[device], device)
            self._send_due()

    def _timeout_s(self):
        return max(0.0, self._late[0][0] - time.monotonic()) if self._late else None

    def _from(self, source, device):
        for _ in range(PACKETS_AT_ONCE):
            try:
                packet = os.read(device, PACKET_MAX)
            except BlockingIOError:
                return
            if packet[0] >> 4 == 4 and packet[19] in self._devices:
                self._forward(source, packet[19], packet)

    def _forward(self, source, target, packet):
        link = self.link(source, target)
        device = self._devices[target]
        if link.cut or (link.loss and self._chance.random() < link.loss):
            self.counts["cut" if link.cut else "lost"] += 1
            return
        self.counts["carried"] += 1
        wait_s = link.delay_s(self._chance)
        if link.bytes_per_s:
            now = time.monotonic()
            free_at = max(now, self._free_at.get((source, target), 0.0))
            if free_at - now > QUEUE_MAX_S:
                self.counts["queue full"] += 1
                return
            free_at += len(packet) / link.bytes_per_s
            self._free_at[source, target] = free_at
            wait_s += free_at - now
        if wait_s:
            self._number += 1
            due = time.monotonic() + wait_s
            heapq.heappush(self._late, (due, self._number, device, packet))
            self.counts["delayed"] += 1
        else:
            self._write(device, packet)

    def _send_due(self):
        now = time.monotonic()
        while self._late and self._late[0][0] <= now:
            _, _, device, packet = heapq.heappop(self._late)
            self._write(device, packet)

    def _write(self, device, packet):
        try:
            os.write(device, packet)
        except BlockingIOError:
            self.counts["queue full"] += 1


if __name__ == "__main__":
    # Ahead of what it connects: a busy machine must not make the network slow.
    os.nice(-10)
    given = (word.split("=") for word in sys.argv[2:])
    devices = {int(machine): int(device) for machine, device in given}
    Switch(devices, random.Random(sys.argv[1])).run()
