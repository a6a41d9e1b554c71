"""An ONNX graph under construction: plain nodes and constants, as floats or with weights of 8 bits.

Knows nothing of translation. The package onnx is wanted only when the graph is turned into bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whilst.core.errors import UserError, naming_extras

OPSET, IR = 21, 10  # what onnxruntime 1.20 and later can read
LARGEST = 2**31 - 2**20  # bytes; a file of the format ends at 2 GiB
Array = NDArray[Any]
Floats = NDArray[np.float32]
Attributes = Mapping[str, Any]  # whole numbers, floats, or lists of them
NONE: Attributes = {}


@dataclass(frozen=True)
class Node:
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attributes


@dataclass(frozen=True)
class Port:
    """An input or output; a size that is a name may differ from call to call."""

    name: str
    shape: tuple[int | str, ...]
    whole: bool = False  # int64, else float32


@dataclass
class Graph:
    name: str
    int8: bool  # weights of linear layers as unsigned 8-bit integers
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    made: int = 0

    def fresh(self) -> str:
        self.made += 1
        return f"v{self.made}"

    def input(self, name: str, *shape: int | str, whole: bool = False) -> str:
        self.inputs.append(Port(name, shape, whole))
        return name

    def output(self, name: str, value: str, *shape: int) -> None:
        self.nodes.append(Node("Identity", (value,), (name,), NONE))
        self.outputs.append(Port(name, shape))

    def constant(self, value: Array) -> str:
        name = self.fresh()
        self.constants[name] = value
        return name

    def whole(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, attributes: Attributes = NONE) -> str:
        return self.ops(kind, 1, inputs, attributes)[0]

    def ops(self, kind: str, count: int, inputs: Sequence[str], attributes: Attributes = NONE) -> list[str]:
        outputs = [self.fresh() for _ in range(count)]
        self.nodes.append(Node(kind, tuple(inputs), tuple(outputs), attributes))
        return outputs

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        return self.ops("Split", len(sizes), [value, self.whole(*sizes)], {"axis": axis})

    def linear(self, value: str, weight: Floats, bias: Floats | None = None) -> str:
        """(rows, in) -> (rows, out); the weight is (out, in), as in torch."""
        if self.int8:
            product = self._integer_product(value, weight)
        else:
            product = self.op("MatMul", value, self.constant(np.ascontiguousarray(weight.T)))
        return product if bias is None else self.op("Add", product, self.constant(bias))

    def _integer_product(self, value: str, weight: Floats) -> str:
        """Inputs are quantised as they come. This order of nodes is what onnxruntime fuses into one.

        Unsigned: sums of products with signed weights overflow on CPUs without VNNI. A scale for each output: a row
        with small weights keeps its precision; the zero lies in the middle for all of them.
        """
        scale = np.maximum(np.abs(weight).max(1), np.finfo(np.float32).tiny * 128) / 127
        whole = np.clip(np.rint(weight / scale[:, None]), -127, 127) + 128
        quantised, input_scale, input_zero = self.ops("DynamicQuantizeLinear", 3, [value])
        weights = self.constant(np.ascontiguousarray(whole.astype(np.uint8).T))
        total = self.op("MatMulInteger", quantised, weights, input_zero, self.constant(np.array(128, np.uint8)))
        scales = self.op("Mul", input_scale, self.constant(scale.astype(np.float32)))
        return self.op("Mul", self.op("Cast", total, attributes={"to": 1}), scales)

    def serialise(self) -> bytes:
        """The bytes of an .onnx file."""
        with naming_extras():
            from onnx import TensorProto, helper, numpy_helper
        size = sum(value.nbytes for value in self.constants.values())
        if size > LARGEST:
            raise UserError(f"graph {self.name}: {size / 2**30:.1f} GiB of weights, but an ONNX file holds only 2")

        def ports(those: list[Port]) -> list[Any]:
            kinds = {False: TensorProto.FLOAT, True: TensorProto.INT64}
            return [helper.make_tensor_value_info(port.name, kinds[port.whole], port.shape) for port in those]

        nodes = [helper.make_node(n.kind, n.inputs, n.outputs, **n.attributes) for n in self.nodes]
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(nodes, self.name, ports(self.inputs), ports(self.outputs), constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="whilst")
        return bytes(model.SerializeToString())
