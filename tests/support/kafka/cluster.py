"""Three real Kafka brokers, each a controller too, on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.support.kafka.broker import Broker, BrokerRun, free_ports

_NODES: Final = 3


class Cluster:
    """Three brokers, each with replicas of all partitions. One at a time can be killed and started again.

    Attributes:
        brokers: by node id.
    """

    def __init__(self, directory: Path, settings: Mapping[str, object], version: str) -> None:
        """Format the storage of all brokers in `directory`; `settings` are more lines of each `server.properties`."""
        ports = free_ports(2 * _NODES)
        of_nodes = {node + 1: (ports[node], ports[_NODES + node]) for node in range(_NODES)}
        voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in of_nodes.items())

        def broker(node: int) -> Broker:
            of_node = {"node.id": node, "controller.quorum.voters": voters, **settings}
            return Broker(directory / str(node), of_node, version=version, ports=of_nodes[node])

        with ThreadPoolExecutor(_NODES) as pool:
            self.brokers = dict(zip(of_nodes, pool.map(broker, of_nodes), strict=True))
        self._runs: dict[int, BrokerRun] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start all brokers, wait until all serve, and kill them at the end of the context."""
        try:
            with ThreadPoolExecutor(_NODES) as pool:  # a broker waits for a quorum
                list(pool.map(self.start, self.brokers))
            yield
        except BaseException as error:
            for run in self._runs.values():
                error.add_note(run.tail())
            raise
        finally:
            for run in self._runs.values():
                run.kill()

    def start(self, node: int) -> None:
        self._runs[node] = self.brokers[node].start()

    def kill(self, node: int) -> None:
        self._runs[node].kill()

    def lines(self, node: int) -> list[str]:
        """The output of a broker in its last run so far."""
        return self._runs[node].lines()
