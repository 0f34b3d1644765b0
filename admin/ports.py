"""What the Admin service is handed by the node that it runs in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from metadata.image import MetadataImage
from net.server import FeatureView


class ControllerCall(Protocol):
    """Sends a Kafka request to the active controller, wherever it is.

    `build(version, message module)` makes the request entity. The call follows a change of
    leadership and retries NOT_CONTROLLER until `timeout_ms` is over. Returns the response
    entity; raises NetworkError, or KafkaError NOT_CONTROLLER where no active controller was
    found in time, or for so long that another controller's door is the better way.
    """

    def __call__(
        self, api_key: int, build: Callable[[int, ModuleType], Any], timeout_ms: int
    ) -> Awaitable[Any]: ...


class WatchedRecord(NamedTuple):
    """One committed record of the metadata log; `value` is framed as in the log (KIP-631)."""

    offset: int
    epoch: int
    timestamp_ms: int
    value: bytes


class SlowWatcher(Exception):
    """A watch source gives up on a reader that is too far behind for what it keeps."""


class WatchSource(Protocol):
    """The committed records of the local metadata log."""

    def iterate(self, from_offset: int) -> AsyncIterator[WatchedRecord]:
        """Records at `from_offset` and above in order, waiting for those to come.

        It reads at the pace of its consumer and holds a bounded number of records. Raises
        KafkaError OFFSET_OUT_OF_RANGE below the start of the log, SlowWatcher as above.
        """
        ...


@dataclass(frozen=True, slots=True)
class AdminPorts:
    """All that the service reads and calls.

    `image` is the local committed image. `confirm_read` returns once the image contains all that
    was committed anywhere when it was called, having asked a majority; it raises KafkaError where
    that can't be had. `active_controller` is the id as far as known here. `node_config` has the
    texts of this node's property file, which give topics some of their defaults.
    """

    cluster_id: str
    image: Callable[[], MetadataImage]
    controller_call: ControllerCall
    confirm_read: Callable[[], Awaitable[Any]]
    features: Callable[[], FeatureView]
    active_controller: Callable[[], int | None]
    watch: WatchSource
    node_config: Mapping[str, str] = field(default_factory=dict)
