"""Memory that onnxruntime's graphs read and write in place. Knows arrays; nothing of translation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_CAPACITY = 64  # columns of a new buffer; it doubles when they are used up

Floats = NDArray[np.float32]


class Buffer:
    """Keys and values of some layers, (layers, 2, heads, capacity, size), and a mask of what may be seen.

    A graph attends to the whole capacity, so it is small as long as it can be: a long sentence must not make those
    after it slow. The memory beneath only grows, up to the longest sentence, and is used again.
    """

    def __init__(self, name: str, layers: int, heads: int, size: int) -> None:
        self.name = name
        self._shape = layers, 2, heads, size
        self._memory: Floats = np.zeros(0, np.float32)
        self._masks: Floats = np.zeros(0, np.float32)
        self.count = 0
        self._lay_out(FIRST_CAPACITY)

    def _lay_out(self, capacity: int) -> None:
        layers, parts, heads, size = self._shape
        wanted = layers * parts * heads * capacity * size
        kept = self.data[:, :, :, : self.count].copy() if self.count else None
        if wanted > len(self._memory):
            self._memory, self._masks = np.zeros(wanted, np.float32), np.zeros(capacity, np.float32)
        self.data: Floats = self._memory[:wanted].reshape(layers, parts, heads, capacity, size)
        self.mask: Floats = self._masks[:capacity]
        if kept is not None:
            self.data[:, :, :, : self.count] = kept

    def restart(self) -> bool:
        """Nothing counts any more. True if everything moved."""
        self.count = 0
        if len(self.mask) == FIRST_CAPACITY:
            return False
        self._lay_out(FIRST_CAPACITY)
        return True

    def show(self, count: int) -> None:
        self.mask[:count] = 0
        self.mask[count:] = -np.inf

    def append(self, new: Floats) -> bool:
        """One more column, (layers * 2 * heads, 1, size). True if everything moved to make room for it."""
        full = self.count == len(self.mask)
        if full:
            self._lay_out(2 * self.count)
        self.data[:, :, :, self.count] = new.reshape(self.data.shape[:3] + self.data.shape[4:])
        self.count += 1
        return full

    def inputs(self) -> dict[str, Floats]:
        """By the names that they have in the graphs; no copies."""
        named = {f"{self.name}.mask": self.mask}
        for number, layer in enumerate(self.data):
            named |= {f"{self.name}.{number}.keys": layer[0], f"{self.name}.{number}.values": layer[1]}
        return named


class Call:
    """A graph with the arrays that it reads and writes in place: told once, not at every call."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._binding = graph.io_binding()
        self._kept: dict[str, NDArray[Any]] = {}  # what is bound must stay alive
        for port in graph.get_outputs():
            made = self._kept[port.name] = np.zeros(port.shape, np.float32)
            self._binding.bind_output(port.name, "cpu", 0, made.dtype, made.shape, made.ctypes.data)

    def bind(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        for name, array in inputs.items():
            assert array.flags.c_contiguous
            self._kept[name] = array
            self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def __getitem__(self, output: str) -> NDArray[Any]:
        """Where an output is written; the next call writes over it."""
        return self._kept[output]

    def __call__(self) -> None:
        self._graph.run_with_iobinding(self._binding)
