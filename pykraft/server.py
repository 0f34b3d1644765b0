"""A node in the real world: event loop, signals, log output, doors, exit code."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

import structlog

from metadata.features import new_cluster_levels
from pykraft import storage_format
from pykraft.doors import open_doors
from pykraft.logs import configure_logs
from pykraft.node import Node
from pykraft.node_config import Address, NodeConfig, resembling
from pykraft.node_files import new_cluster_id
from wire.errors import FatalError, KafkaError
from wire.exits import EXIT_CANNOT_LISTEN, EXIT_METADATA_DISK_FAILED
from world.env import DiskError, Env
from world.real import real_env

try:
    import uvloop
except ImportError:  # not on every platform
    _new_loop = asyncio.new_event_loop
else:
    _new_loop = uvloop.new_event_loop


_COLLECT_AFTER = 10_000  # new objects; some milliseconds of looking


def run_node(config: NodeConfig, *, ready_fd: int | None, format_if_new: bool) -> int:
    """Runs a node until SIGTERM or SIGINT, or until it can't go on; returns the exit code.

    `ready_fd` gets one line once the node can serve. A FatalError's exit code is the process's.
    """
    configure_logs(config.node_id, config.static["pykraft.log.level"])
    # By default the collector looks after 700 new objects, which is fewer than what a thousand
    # waiting requests consist of: a sixth of a busy controller's time, and nothing to be found.
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    log = structlog.get_logger("server")
    for name in config.static.unknown:
        like = resembling(name)
        rule = f"it is ignored; is {like} meant?" if like else "it is ignored"
        log.warning("unknown_setting", name=name, rule=rule)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            told_by = runner.run(_serve(real_env(), config, ready_fd, format_if_new))
    except FatalError as error:
        log.critical("stopped", reason=error.reason, exit_code=error.exit_code)
        _tell(ready_fd, f"stopped: {error.reason}")
        return error.exit_code
    except KafkaError as error:
        log.critical("not_started", reason=error.message, error=error.code.name.upper())
        _tell(ready_fd, f"not started: {error.message}")
        return 1
    except (OSError, DiskError) as error:
        log.critical("not_started", reason=str(error))
        _tell(ready_fd, f"not started: {error}")
        return EXIT_CANNOT_LISTEN
    # Here, where the loop has ended with all that might still log: it is the last line.
    log.info("stopped", reason=told_by.name, exit_code=0)
    return 0


def _tell(ready_fd: int | None, what: str) -> None:
    """The last word in plain text, for a person who started the node by hand."""
    if ready_fd is None:
        _say(f"pykraft: {what}")


def _say(line: str) -> None:
    """Plain text among the log's lines. That nobody reads it any more, or its disk is full, neither
    ends a node nor changes its exit code, which what `print` holds back would do at the end."""
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"{line}\n".encode())


async def _serve(
    env: Env, config: NodeConfig, ready_fd: int | None, format_if_new: bool
) -> signal.Signals:
    """Returns the signal that told the node to stop."""
    await _check_free(config)
    if format_if_new:
        await _format_new(env, config)
    stop = asyncio.Event()
    told_by: list[signal.Signals] = []

    def tell(number: signal.Signals) -> None:
        told_by.append(number)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell, number)
    node = Node(env, config)
    # Connections never take the files that the logs need.
    listeners = len(config.broker_listeners) + (config.controller_listener is not None)
    node.connections_max = raise_file_limit() // (2 * listeners)
    try:
        if await node.start_unless(stop):
            async with open_doors(node) as doors:
                await _until_ready_or(stop, node)
                # Once ready counts: a leader lost since is no reason to leave the launcher waiting.
                if node.failure is None and not stop.is_set():
                    _say_ready(node, doors, ready_fd)
                await _first_of(stop.wait(), node.failed())
    finally:
        # In this order: the doors have closed, so nobody asks a node that is going.
        await _stop(node)
    if node.failure is not None:
        raise node.failure
    return told_by[0]


def raise_file_limit() -> int:
    """Lets this process have as many files open as the system ever allows it; how many that are.

    A broker has each segment open; the usual limit of a shell, 1024, is meant for other programs.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft


async def _stop(node: Node) -> None:
    """Stops the node; what can't be written any more must not hide why it failed, if it has."""
    try:
        await node.stop()
    except (OSError, DiskError) as error:
        structlog.get_logger("server").error("not_stopped_cleanly", reason=str(error))
        node.fail(FatalError(EXIT_METADATA_DISK_FAILED, f"not stopped cleanly: {error}"))


async def _check_free(config: NodeConfig) -> None:
    """Looks whether every address can be had, before anything on disk is touched.

    OSError names the setting and the address. Another may still take one in the next moment: then
    the listener itself says so.
    """
    places = [("listeners", listener.bind) for listener in config.broker_listeners]
    if config.controller_listener is not None:
        places.append(("listeners", config.controller_listener.bind))
    if config.admin is not None:
        places.append(("pykraft.admin.listener", config.admin))
    places.append(("pykraft.metrics.listener", config.metrics))
    held: list[socket.socket] = []
    try:
        # All at once, so that none of them takes the place of another.
        for setting, place in places:
            try:
                held += await _hold(place.host, place.port)
            except OSError as error:
                reason = str(error)
                # The number of a name that isn't known is not the system's.
                if isinstance(error, socket.gaierror):
                    reason = error.strerror or reason
                elif error.errno:
                    reason = os.strerror(error.errno)
                raise OSError(
                    f"{place} can't be listened on: {reason} (set by {setting})"
                ) from error
    finally:
        for one in held:
            one.close()


async def _hold(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at each address of a host, as the listener's own will.

    Nothing is accepted here: who connects meanwhile is reset as they close, and comes again. One
    accepted would wait for its answer for ever.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    held: list[socket.socket] = []
    missing: OSError | None = None
    for family, address in dict.fromkeys((one[0], one[4]) for one in found):
        try:
            held.append(socket.create_server(address, family=family))
        except OSError as error:
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                for one in held:
                    one.close()
                raise
            missing = error  # a system without IPv6 may still know the name by it
    if missing is not None and not held:
        raise missing
    return held


async def _format_new(env: Env, config: NodeConfig) -> None:
    """Formats the directories of a first start without a configuration file."""
    formatted = f"{config.metadata_log_dir}/{storage_format.META_PROPERTIES}"
    if not env.disk.exists(formatted):
        await storage_format.format_directories(
            env,
            config.log_dirs,
            node_id=config.node_id,
            cluster_id=new_cluster_id(),
            levels=new_cluster_levels(),
            metadata_directory=config.metadata_log_dir,
        )


async def _until_ready_or(stop: asyncio.Event, node: Node) -> None:
    await _first_of(stop.wait(), node.failed(), node.wait_ready())


async def _first_of(*waits: object) -> None:
    """Returns when the first has; ends the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _say_ready(node: Node, doors: Mapping[str, Address], ready_fd: int | None) -> None:
    log = structlog.get_logger("server")
    log.info("ready", **node.addresses(), **{name: str(place) for name, place in doors.items()})
    if ready_fd is not None:
        try:
            os.write(ready_fd, b"ready\n")
        except BrokenPipeError:
            log.info("nobody_waits", reason="whoever started this node has stopped waiting")
        os.close(ready_fd)
    else:
        titles = {"admin": "gRPC"}
        places = ", ".join(f"{titles.get(name, name)} {place}" for name, place in doors.items())
        line = f"pykraft: ready, {node.summary()}; {places}"
        # On a terminal it stands out of the log around it.
        _say(f"\n\033[1m{line}\033[0m\n" if sys.stderr.isatty() else line)
    # What stands at the start stands for long, a large image above all: the collector need not
    # look at it again, which would stop everything for as long as the image is large.
    gc.freeze()
