"""Three real Kafka brokers, each a controller too, on loopback."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.support.kafka.broker import CLUSTER_ID, Broker, BrokerRun, free_ports

_NODES: Final = 3


class Cluster:
    """Three brokers, each with replicas of all partitions. One at a time can be killed and started again.

    Attributes:
        brokers: by node id.
        ports: of each broker and its controller.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        version: str,
        *,
        in_place_of: Cluster | None = None,
        cluster_id: str = CLUSTER_ID,
        make: Callable[..., Broker] = Broker,
    ) -> None:
        """Format the storage of all brokers in `directory`.

        Args:
            settings: more lines of each `server.properties`.
            in_place_of: a cluster that does not run any more, whose ports these brokers take.
            cluster_id: the id with which storage is formatted.
            make: makes a broker.
        """
        ports = free_ports(2 * _NODES)
        of_nodes = {node + 1: (ports[node], ports[_NODES + node]) for node in range(_NODES)}
        of_nodes = of_nodes if in_place_of is None else in_place_of.ports
        self.ports: dict[int, tuple[int, int]] = of_nodes
        voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in of_nodes.items())

        def broker(node: int) -> Broker:
            of_node = {"node.id": node, "controller.quorum.voters": voters, **settings}
            directory_of_node = directory / str(node)
            return make(directory_of_node, of_node, version=version, ports=of_nodes[node], cluster_id=cluster_id)

        with ThreadPoolExecutor(_NODES) as pool:
            self.brokers = dict(zip(of_nodes, pool.map(broker, of_nodes), strict=True))
        self._runs: dict[int, BrokerRun] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @contextlib.contextmanager
    def running(self, last: int | None = None, without: int | None = None) -> Iterator[None]:
        """Start all brokers, wait until all serve, and kill them at the end of the context.

        Args:
            last: the broker that is started once the others serve.
            without: one that is not started.
        """
        try:
            with ThreadPoolExecutor(_NODES) as pool:  # a broker waits for a quorum
                list(pool.map(self.start, self.brokers.keys() - {last, without}))
            if last is not None:
                self.start(last)
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
