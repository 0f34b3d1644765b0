"""A JVM controller alone, asked by brokers that exist in a test only; and what it wrote."""

import itertools
import socket
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path

import jvm_node
import kafka_jvm
from controller_scene import Requests
from waiting import wait_until

from metadata.image import EMPTY
from metadata.records import decode
from pykraft.ports import free_ports
from wire.batch import decode_records, iter_headers
from wire.messages import RequestHeader, decode_response, encode_request, fill, request_class

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
ANSWER_TIMEOUT_S = 60
SIZE = struct.Struct(">i")


class JvmController(Requests):
    """The requests go to the process's controller listener, one after the other."""

    cluster = CLUSTER_ID

    def __init__(self, path, version, levels, **properties):
        super().__init__(seed=1)
        (port,) = free_ports(1)
        self._port = port
        self._correlation = itertools.count()
        self.directory = Path(path) / "jvm"
        self.log = Path(path) / "jvm.log"
        values = {
            "process.roles": "controller",
            "node.id": 3000,
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"3000@127.0.0.1:{port}",
            "log.dirs": self.directory,
            # Nobody's heartbeats are missed, and nothing is elected that was not asked for.
            "broker.session.timeout.ms": 3_600_000,
            "auto.leader.rebalance.enable": "false",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        self._config = jvm_node.write_properties(Path(path) / "controller.properties", values)
        arguments = ["format", "--config", str(self._config), "--cluster-id", CLUSTER_ID]
        for feature, level in levels.items():
            arguments += ["--feature", f"{feature}={level}"]
        classpath = kafka_jvm.classpath(version)
        kafka_jvm.run_java("kafka.tools.StorageTool", arguments, classpath)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(kafka_jvm.java(), *jvm_node.JVM_OPTIONS),
                    *("-cp", classpath, "kafka.Kafka", str(self._config)),
                ],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        self._socket = None
        self._read = self._applied = 0
        self._records = []
        self._image = EMPTY

    def connect(self):
        """Waits until it listens."""

        def connected():
            assert self._process.poll() is None, self.log.read_text()[-3000:]
            try:
                return socket.create_connection(("127.0.0.1", self._port), ANSWER_TIMEOUT_S)
            except ConnectionRefusedError:
                return None

        self._socket = wait_until(connected, "a JVM controller", 60)

    def ask(self, key, version, **fields):
        entity = fill(request_class(key, version), **fields)
        header = RequestHeader(key, version, next(self._correlation), "test")
        self._socket.sendall(encode_request(header, entity))
        (size,) = SIZE.unpack(self._receive(SIZE.size))
        correlation, answer = decode_response(key, version, self._receive(size))
        assert correlation == header.correlation_id
        return answer

    def _receive(self, size):
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the JVM controller closed the connection"
            data += more
        return data

    def records(self):
        """Everything in its metadata log so far, decoded; control records left out."""
        path = self.directory / "__cluster_metadata-0" / "00000000000000000000.log"
        with path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        for position, header in iter_headers(data):
            if not header.is_control:
                entries = decode_records(data, position, header)
                self._records += [decode(entry.value).record for entry in entries]
            self._read += header.length
        return self._records

    @property
    def image(self):
        """What its log comes to so far."""
        for record in self.records()[self._applied :]:
            self._image = self._image.apply(record)
            self._applied += 1
        return self._image

    def stop(self):
        if self._socket is not None:
            self._socket.close()
        self._process.kill()
        self._process.wait(120)


@contextmanager
def jvm_controller(path, version, levels, **properties):
    """One that has just begun its log; killed on leaving."""
    controller = JvmController(path, version, levels, **properties)
    try:
        controller.connect()
        yield controller
    finally:
        controller.stop()
