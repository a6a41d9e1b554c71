"""An ONNX graph under construction: nodes, constants, linear layers (fp32, int8). Knows nothing of translation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from whilst.core.errors import UserError

OPSET, IR = 21, 10  # supported by onnxruntime 1.20 and later
MAX_BYTES = 2**31 - 2**20  # an ONNX file ends at 2 GiB
Array = NDArray[Any]
Floats = NDArray[np.float32]


class Graph:
    """Methods that add a value return its name in the graph."""

    def __init__(self, name: str, int8: bool) -> None:
        """`int8`: weights of linear layers are unsigned 8-bit integers."""
        self.name, self.int8 = name, int8
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._values = self._bytes = 0

    def _new_name(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def input(self, name: str, *shape: int | str, integer: bool = False) -> str:
        """float32, or int64; a dimension that is a string may differ from call to call."""
        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, *shape: int) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def constant(self, value: Array) -> str:
        name = self._new_name()
        self._bytes += value.nbytes
        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, attributes: Mapping[str, Any] | None = None) -> str:
        return self.ops(kind, 1, inputs, attributes)[0]

    def ops(
        self, kind: str, count: int, inputs: Sequence[str], attributes: Mapping[str, Any] | None = None
    ) -> list[str]:
        """A node with several outputs."""
        outputs = [self._new_name() for _ in range(count)]
        self._nodes.append(helper.make_node(kind, inputs, outputs, **(attributes or {})))
        return outputs

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        return self.ops("Split", len(sizes), [value, self.integers(*sizes)], {"axis": axis})

    def linear(self, value: str, weight: Floats, bias: Floats | None = None) -> str:
        """(rows, in) -> (rows, out); the weight is (out, in), as in torch."""
        if self.int8:
            product = self._integer_product(value, weight)
        else:
            product = self.op("MatMul", value, self.constant(np.ascontiguousarray(weight.T)))
        return product if bias is None else self.op("Add", product, self.constant(bias))

    def _integer_product(self, value: str, weight: Floats) -> str:
        """Inputs are quantised dynamically. onnxruntime fuses nodes in exactly this order.

        Weights are unsigned because sums with signed ones overflow on CPUs without VNNI. Each output has its own
        scale, so rows of small weights keep their precision; the zero point is 128 for all.
        """
        scale = np.maximum(np.abs(weight).max(1), np.finfo(np.float32).tiny * 128) / 127
        integers = np.clip(np.rint(weight / scale[:, None]), -127, 127) + 128
        quantised, input_scale, input_zero = self.ops("DynamicQuantizeLinear", 3, [value])
        weights = self.constant(np.ascontiguousarray(integers.astype(np.uint8).T))
        total = self.op("MatMulInteger", quantised, weights, input_zero, self.constant(np.array(128, np.uint8)))
        scales = self.op("Mul", input_scale, self.constant(scale.astype(np.float32)))
        return self.op("Mul", self.op("Cast", total, attributes={"to": TensorProto.FLOAT}), scales)

    def serialise(self) -> bytes:
        """The bytes of an .onnx file."""
        if self._bytes > MAX_BYTES:
            size = self._bytes / 2**30
            raise UserError(f"graph {self.name}: {size:.1f} GiB of weights, but an ONNX file holds only 2")
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="whilst")
        return bytes(model.SerializeToString())
