"""Network namespaces of the running process' own: no name, nothing to remove.

A namespace lives as long as something is open or runs in it, a TUN device as long as it is open:
whatever ends the test, a SIGKILL too, ends them.
"""

import ctypes
import fcntl
import os
import re
import shutil
import struct
import subprocess
import sys
from contextlib import contextmanager

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_OWN = "/proc/thread-self/ns/net"


def why_not():
    """Why this machine can't give a test its own network; None where it can."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's, this is {sys.platform}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no `ip` command (Debian: iproute2)"
    try:
        namespace = new_namespace()
        try:
            with inside(namespace):
                device = open_tun("192.0.2.1")
                os.close(device)
        finally:
            os.close(namespace)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"a network namespace with a TUN device can't be made: {error}"
    return None


def new_namespace():
    """A descriptor of a new, empty network namespace."""
    before = os.open(_OWN, os.O_RDONLY)
    try:
        _check(_libc().unshare(_CLONE_NEWNET))
        made = os.open(_OWN, os.O_RDONLY)
        _check(_libc().setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)
    return made


@contextmanager
def inside(namespace):
    """This thread, and the processes that it starts, are in the namespace. None: where they are."""
    if namespace is None:
        yield
        return
    before = os.open(_OWN, os.O_RDONLY)
    try:
        _check(_libc().setns(namespace, _CLONE_NEWNET))
        try:
            yield
        finally:
            _check(_libc().setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def open_tun(address, mtu=1500):
    """A TUN device with `address` in its /24, up; its descriptor. Closed, it is gone."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        wanted = struct.pack("16sH22x", b"pykraft%d", _IFF_TUN | _IFF_NO_PI)
        name = fcntl.ioctl(device, _TUNSETIFF, wanted)[:16].rstrip(b"\0").decode()
        commands = (
            "link set lo up",
            f"address add {address}/24 dev {name}",
            f"link set {name} mtu {mtu} up",
        )
        subprocess.run(
            ["ip", "-batch", "-"], input="\n".join(commands).encode(), check=True, timeout=20
        )
    except BaseException:
        os.close(device)
        raise
    return device


def addresses():
    """The IPv4 addresses in use here, one text each."""
    text = subprocess.run(
        ["ip", "-o", "-4", "address"], capture_output=True, text=True, check=True, timeout=20
    ).stdout
    return re.findall(r" inet ([0-9.]+)", text)


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _check(result):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
