"""Memory that onnxruntime's graphs read and write in place: key/value buffers, and graphs bound to arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIRST_CAPACITY = 64  # columns of a new buffer; doubled when they are full

Floats = NDArray[np.float32]


class KeyValueBuffer:
    """Keys and values of several layers, (layers, 2, heads, capacity, head size), and an attention mask over them.

    A graph attends to the whole capacity, so every sentence starts with a small one, or sentences after a long one
    would be slow. The allocation below only grows and is reused.
    """

    def __init__(self, name: str, layers: int, heads: int, head_size: int) -> None:
        self.name = name
        self._shape = layers, 2, heads, head_size
        self._memory: Floats = np.zeros(0, np.float32)
        self._masks: Floats = np.zeros(0, np.float32)
        self.count = 0  # columns in use
        self._resize(FIRST_CAPACITY)

    def _resize(self, capacity: int) -> None:
        layers, parts, heads, size = self._shape
        total = layers * parts * heads * capacity * size
        used = self.data[:, :, :, : self.count].copy() if self.count else None
        if total > len(self._memory):
            self._memory, self._masks = np.zeros(total, np.float32), np.zeros(capacity, np.float32)
        self.data: Floats = self._memory[:total].reshape(layers, parts, heads, capacity, size)
        self.mask: Floats = self._masks[:capacity]
        if used is not None:
            self.data[:, :, :, : self.count] = used

    def clear(self) -> bool:
        """Remove all columns. True if the arrays moved and must be bound again."""
        self.count = 0
        moved = len(self.mask) != FIRST_CAPACITY
        if moved:
            self._resize(FIRST_CAPACITY)
        return moved

    def set_visible(self, count: int) -> None:
        """Mask all columns but the first `count`."""
        self.mask[:count] = 0
        self.mask[count:] = -np.inf

    def append(self, column: Floats) -> bool:
        """Add (layers * 2 * heads, 1, head size). True if the arrays moved and must be bound again."""
        full = self.count == len(self.mask)
        if full:
            self._resize(2 * self.count)
        self.data[:, :, :, self.count] = column.reshape(self.data.shape[:3] + self.data.shape[4:])
        self.count += 1
        return full

    def inputs(self) -> dict[str, Floats]:
        """Views by the names of the graphs' inputs."""
        named = {f"{self.name}.mask": self.mask}
        for number, layer in enumerate(self.data):
            named |= {f"{self.name}.{number}.keys": layer[0], f"{self.name}.{number}.values": layer[1]}
        return named


class BoundGraph:
    """A graph with the arrays that it reads and writes in place; each call overwrites its outputs."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._binding = graph.io_binding()
        self._arrays: dict[str, NDArray[Any]] = {}  # a binding does not keep its arrays alive
        for port in graph.get_outputs():
            array = self._arrays[port.name] = np.zeros(port.shape, np.float32)
            self._binding.bind_output(port.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def bind(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        for name, array in inputs.items():
            assert array.flags.c_contiguous
            self._arrays[name] = array
            self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def __getitem__(self, output: str) -> NDArray[Any]:
        return self._arrays[output]

    def row(self, output: str) -> Floats:
        """A copy of an output (1, size), as (size)."""
        return self._arrays[output].flatten()

    def __call__(self) -> None:
        self._graph.run_with_iobinding(self._binding)
