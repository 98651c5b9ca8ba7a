"""A task captured and analysed: what search, cost and execution all start from."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time

from flowaware_core.garbage import collection_paused
from flowaware_core.graph.capture import capture
from flowaware_core.graph.model import Graph
from flowaware_core.graph.structure import Structure, analyse
from flowaware_core.task import Task


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A task with its graph and structure, and the seconds that took."""

    task: Task
    graph: Graph
    structure: Structure
    capture_s: float
    analyse_s: float

    @staticmethod
    def of(task: Task) -> Program:
        """Traces and analyses; makes no array."""
        with collection_paused():
            begin = time.perf_counter()
            graph = capture(task)
            middle = time.perf_counter()
            structure = analyse(graph)
            return Program(task, graph, structure, middle - begin, time.perf_counter() - middle)

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the program's structure without its sizes: equal for a batch of 8 and of 512."""
        digest = hashlib.sha256()
        for operator, times in self.graph.walk():
            operands = [operand if isinstance(operand, int) else "literal" for operand in operator.operands]
            digest.update(repr((operator.primitive, operands, operator.results, times > 1)).encode())
        return digest.hexdigest()[:16]
