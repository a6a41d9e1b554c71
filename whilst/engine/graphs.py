"""Build ONNX graphs of the translator and the agent: one step of one sentence each.

Graphs return only the new columns of the key/value buffers; the caller appends them. Masks are added to scores: 0
for a visible column, -inf for a hidden one. Every layer's part of a buffer is a separate input, because slicing one
tensor inside the graph would copy it.

Weights and arithmetic are the same as in model/transformer.py and model/agent.py; tests compare the two.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from whilst.engine.runtime import Floats
from whilst.model.agent import Agent
from whilst.model.attention import Heads
from whilst.model.layers import DecoderLayer, EncoderLayer, Sublayer
from whilst.model.transformer import Translator

OPSET, IR = 21, 10  # supported by onnxruntime 1.20 and later


class Graph:
    """An ONNX graph under construction. Methods that add a value return its name in the graph."""

    def __init__(self, name: str, int8: bool) -> None:
        """`int8`: weights of linear layers are signed 8-bit integers."""
        self.name, self.int8 = name, int8
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._names = (f"v{number}" for number in itertools.count(1))

    def input(self, name: str, *shape: int | str, integer: bool = False) -> str:
        """A float32 input, or int64 if `integer`. A dimension that is a string may differ from call to call."""
        kind = TensorProto.INT64 if integer else TensorProto.FLOAT
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: str, *shape: int) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def constant(self, value: NDArray[Any], name: str = "") -> str:
        name = name or next(self._names)
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
        outputs = [next(self._names) for _ in range(count)]
        self._nodes.append(helper.make_node(kind, inputs, outputs, **(attributes or {})))
        return outputs

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[str]:
        return self.ops("Split", len(sizes), [value, self.integers(*sizes)], {"axis": axis})

    def linear(self, value: str, weight: Floats, bias: Floats | None = None, name: str = "") -> str:
        """(rows, in) -> (rows, out); the weight is (out, in), as in torch. `name`: prefix of constants' names."""
        if self.int8:
            product = self._integer_product(value, weight, name)
        else:
            product = self.op("MatMul", value, self.constant(np.ascontiguousarray(weight.T)))
        return product if bias is None else self.op("Add", product, self.constant(bias, name and f"{name} bias"))

    def name_of(self, layers: Sequence[nn.Module], scale: float) -> str:  # noqa: ARG002
        """The name of these layers' constants, by which model/engine_weights.py finds them; "": any name."""
        return ""

    def layers(self, value: str, layers: Sequence[nn.Module], scale: float = 1.0) -> str:
        """Linear layers of the same input as one layer: (1, in) -> (1, sum of out). `scale`: of the first one."""
        weights, biases = ([floats(layer.get_parameter(name)) for layer in layers] for name in ("weight", "bias"))
        weights[0], biases[0] = weights[0] * np.float32(scale), biases[0] * np.float32(scale)
        name = self.name_of(layers, scale)
        return self.linear(value, np.concatenate(weights), np.concatenate(biases), name)

    def _integer_product(self, value: str, weight: Floats, name: str) -> str:
        """Multiply dynamically quantised inputs by 8-bit weights. onnxruntime only fuses nodes in this exact order.

        Each output has its own scale, so rows of small weights keep their precision. Weights are signed because
        VNNI multiplies unsigned inputs by signed weights; for other CPUs see `load_graph`.
        """
        integers, scale = quantised(weight)
        inputs, input_scale, input_zero = self.ops("DynamicQuantizeLinear", 3, [value])
        weights = self.constant(np.ascontiguousarray(integers.T), name and f"{name} weight")
        total = self.op("MatMulInteger", inputs, weights, input_zero, self.constant(np.array(0, np.int8)))
        scales = self.op("Mul", input_scale, self.constant(scale, name and f"{name} scale"))
        return self.op("Mul", self.op("Cast", total, attributes={"to": TensorProto.FLOAT}), scales)

    def serialise(self) -> bytes:
        graph = helper.make_graph(self._nodes, self.name, self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR, producer_name="whilst")
        return bytes(model.SerializeToString())


def quantised(weight: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Integers from -127 to 127, and the scale of each row.

    A scale has 17 significant bits, so its products with the integers are exact in fp32, and quantising these
    products gives the same integers and scale again.
    """
    scale = (np.maximum(np.abs(weight).max(1), np.finfo(np.float32).tiny * 128) / 127).astype(np.float32)
    scale = (scale.view(np.uint32) & np.uint32(0xFFFFFF80)).view(np.float32)
    return np.clip(np.rint(weight / scale[:, None]), -127, 127).astype(np.int8), scale


def floats(tensor: Tensor) -> Floats:
    return tensor.detach().cpu().numpy().astype(np.float32)


class TranslatorGraph(Graph):
    """Adds parts of the translator's layers. A state is (1, width)."""

    def __init__(self, name: str, int8: bool, model: Translator) -> None:
        super().__init__(name, int8)
        self.width, self.heads = model.settings.width, model.settings.heads
        self.head_size = self.width // self.heads
        self._modules = {module: name for name, module in model.named_modules()}

    def name_of(self, layers: Sequence[nn.Module], scale: float) -> str:
        return " ".join([f"{scale!r}", *(self._modules[layer] for layer in layers)])

    def norm(self, state: str, layer: nn.Module) -> str:
        if isinstance(layer, nn.Identity):
            return state
        assert isinstance(layer, nn.LayerNorm)
        name = self.name_of([layer], 1.0)
        weight = self.constant(floats(layer.weight), f"{name} weight")
        bias = self.constant(floats(layer.bias), f"{name} bias")
        return self.op("LayerNormalization", state, weight, bias, attributes={"axis": -1, "epsilon": layer.eps})

    def before(self, state: str, sublayer: Sublayer) -> str:
        return self.norm(state, sublayer.norm) if sublayer.pre else state

    def after(self, state: str, change: str, sublayer: Sublayer) -> str:
        total = self.op("Add", state, change)
        return total if sublayer.pre else self.norm(total, sublayer.norm)

    def split_heads(self, value: str, parts: int) -> str:
        """(1, parts * width) -> (parts * heads, 1, head size)."""
        return self.op("Reshape", value, self.integers(parts * self.heads, 1, self.head_size))

    def merge_heads(self, value: str, out: nn.Module) -> str:
        """(heads, 1, head size) -> (1, width), through the output layer of the attention."""
        return self.layers(self.op("Reshape", value, self.integers(1, self.width)), [out])

    def scores(self, query: str, keys: str) -> str:
        """(heads, 1, head size) x (heads, keys, head size) -> (heads, 1, keys)."""
        return self.op("MatMul", query, self.op("Transpose", keys, attributes={"perm": [0, 2, 1]}))

    def cache_inputs(self, name: str, number: int) -> tuple[str, str]:
        """Keys and values of a layer in a buffer, (heads, capacity, head size) each."""
        shape = self.heads, f"{name}_capacity", self.head_size
        return self.input(f"{name}.{number}.keys", *shape), self.input(f"{name}.{number}.values", *shape)

    def self_attention(
        self, state: str, layer: EncoderLayer | DecoderLayer, cache: tuple[str, str], mask: str
    ) -> tuple[str, str]:
        """One token attends to the cache and to itself -> its state, its keys and values (2 * heads, 1, head size).

        Its keys are not concatenated with the cached ones, which would copy the cache: the scores are concatenated.
        """
        attention, sublayer, heads = layer.attention, layer.attention_sublayer, self.heads
        parts = [attention.query, attention.key_value]
        projected = self.layers(self.before(state, sublayer), parts, self.head_size**-0.5)
        query, key_value = self.split(self.split_heads(projected, 3), [heads, 2 * heads], 0)
        key, value = self.split(key_value, [heads, heads], 0)
        cached = self.op("Add", self.scores(query, cache[0]), mask)
        both = self.op("Concat", cached, self.scores(query, key), attributes={"axis": 2})
        weights = self.op("Softmax", both, attributes={"axis": 2})
        last = self.integers(-1)
        cached_weights = self.op("Slice", weights, self.integers(0), last, self.integers(2))
        own_weight = self.op("Slice", weights, last, self.integers(2**62), self.integers(2))
        mixed = self.op("Add", self.op("MatMul", cached_weights, cache[1]), self.op("Mul", own_weight, value))
        return self.after(state, self.merge_heads(mixed, attention.out), sublayer), key_value

    def cross_attention(self, state: str, layer: DecoderLayer, source: tuple[str, str], mask: str) -> str:
        attention, sublayer = cross_of(layer), layer.cross_sublayer
        projected = self.layers(self.before(state, sublayer), [attention.query], self.head_size**-0.5)
        masked = self.op("Add", self.scores(self.split_heads(projected, 1), source[0]), mask)
        mixed = self.op("MatMul", self.op("Softmax", masked, attributes={"axis": 2}), source[1])
        return self.after(state, self.merge_heads(mixed, attention.out), sublayer)

    def feed_forward(self, state: str, layer: EncoderLayer | DecoderLayer) -> str:
        first, last, sublayer = layer.feed_forward[0], layer.feed_forward[3], layer.feed_forward_sublayer
        inner = self.op("Relu", self.layers(self.before(state, sublayer), [first]))
        return self.after(state, self.layers(inner, [last]), sublayer)


def cross_of(layer: nn.Module) -> Heads:
    assert isinstance(layer, DecoderLayer)
    assert isinstance(layer.cross, Heads), "monotonic heads have no graph"
    return layer.cross


def stack(graph: TranslatorGraph, name: str, layers: nn.ModuleList, norm: nn.Module) -> str:
    """Run one token through the encoder or decoder. Its state, keys and values become outputs of the graph."""
    state = graph.input("embedded", 1, graph.width)
    mask = graph.input(f"{name}.mask", f"{name}_capacity")
    source_mask = graph.input("source.mask", "source_capacity") if name == "decoder" else ""
    columns = []
    for number, layer in enumerate(layers):
        assert isinstance(layer, EncoderLayer | DecoderLayer)
        state, column = graph.self_attention(state, layer, graph.cache_inputs(name, number), mask)
        if isinstance(layer, DecoderLayer):
            state = graph.cross_attention(state, layer, graph.cache_inputs("source", number), source_mask)
        state = graph.feed_forward(state, layer)
        columns.append(column)
    state = graph.norm(state, norm)
    graph.output("state", state, 1, graph.width)
    # (layers * 2 * heads, 1, head size): keys first in each layer.
    new, count = graph.op("Concat", *columns, attributes={"axis": 0}), 2 * len(columns)
    graph.output(f"{name}.new", new, count * graph.heads, 1, graph.head_size)
    return state


def read_graph(model: Translator, int8: bool) -> Graph:
    """A source token -> its encoder state, its keys and values in the encoder and for cross-attention."""
    graph, count = TranslatorGraph("read", int8, model), 2 * len(model.decoder)
    state = stack(graph, "encoder", model.encoder, model.encoder_norm)
    # One product for all decoder layers.
    projected = graph.layers(state, [cross_of(layer).key_value for layer in model.decoder])
    graph.output("source.new", graph.split_heads(projected, count), count * graph.heads, 1, graph.head_size)
    return graph


def write_graph(model: Translator, int8: bool) -> Graph:
    """The last target token -> the decoder state that writes the next one, and its keys and values."""
    graph = TranslatorGraph("write", int8, model)
    stack(graph, "decoder", model.decoder, model.decoder_norm)
    return graph


def words_graph(model: Translator, int8: bool) -> Graph:
    """The output layer: decoder state -> logits. Its weights are the target embedding."""
    weight = floats(model.target_embedding.weight)
    graph = Graph("words", int8)
    graph.output("logits", graph.linear(graph.input("state", 1, weight.shape[1]), weight), 1, len(weight))
    return graph


def agent_graph(agent: Agent, width: int, int8: bool) -> Graph:
    """One step of the agent -> the log-odds of WRITE, and the agent's new state."""
    graph = Graph("agent", int8)
    names = ["source", "target"]
    names += ["source_state", "target_state"] if agent.settings.inputs != "embeddings" else []
    names += ["ahead"] if agent.settings.inputs == "lookahead" else []  # "ahead": as in older exports
    observed = graph.op("Concat", *(graph.input(name, 1, width) for name in names), attributes={"axis": 1})
    tokens = graph.layers(observed, [agent.tokens])
    # There are two actions, so their layer is a table of two rows.
    actions = graph.constant(floats(agent.action(agent.action_embedding.weight)))
    action = graph.op("Gather", actions, graph.input("action", 1, integer=True))
    latencies = graph.constant(floats(agent.latency.weight))
    latency = graph.op("Gather", latencies, graph.input("interval", 1, integer=True))
    inputs = graph.op("Concat", tokens, graph.op("Add", action, latency), attributes={"axis": 1})
    if isinstance(agent.core, nn.LSTM):
        state = lstm(graph, agent.core, inputs)
    elif isinstance(agent.core, nn.GRU):
        state = gru(graph, agent.core, inputs)
    else:
        assert isinstance(agent.core, nn.Sequential)
        state = graph.op("Relu", graph.layers(inputs, [agent.core[0]]))
    graph.output("odds", graph.layers(state, [agent.out]), 1, 1)
    return graph


def lstm(graph: Graph, core: nn.LSTM, inputs: str) -> str:
    """One step of torch.nn.LSTM; its gates are ordered input, forget, cell, output."""
    hidden = core.hidden_size
    previous, cell = graph.input("memory.0", 1, hidden), graph.input("memory.1", 1, hidden)
    from_input, from_state, *biases = (floats(part) for part in core.all_weights[0])
    weight, bias = np.concatenate([from_input, from_state], 1), biases[0] + biases[1]
    gates = graph.linear(graph.op("Concat", inputs, previous, attributes={"axis": 1}), weight, bias)
    enter, forget, new, output = graph.split(gates, [hidden] * 4, 1)
    remaining = graph.op("Mul", graph.op("Sigmoid", forget), cell)
    added = graph.op("Mul", graph.op("Sigmoid", enter), graph.op("Tanh", new))
    cell = graph.op("Add", remaining, added)
    state = graph.op("Mul", graph.op("Sigmoid", output), graph.op("Tanh", cell))
    graph.output("memory.new.0", state, 1, hidden)
    graph.output("memory.new.1", cell, 1, hidden)
    return state


def gru(graph: Graph, core: nn.GRU, inputs: str) -> str:
    """One step of torch.nn.GRU; its gates are ordered reset, update, new."""
    hidden = core.hidden_size
    previous = graph.input("memory.0", 1, hidden)
    weights = [floats(part) for part in core.all_weights[0]]  # for inputs, for the state, and their biases
    from_input = graph.linear(inputs, weights[0], weights[2])
    from_state = graph.linear(previous, weights[1], weights[3])
    input_gates, input_new = graph.split(from_input, [2 * hidden, hidden], 1)
    state_gates, state_new = graph.split(from_state, [2 * hidden, hidden], 1)
    gates = graph.op("Sigmoid", graph.op("Add", input_gates, state_gates))
    reset, update = graph.split(gates, [hidden, hidden], 1)
    new = graph.op("Tanh", graph.op("Add", input_new, graph.op("Mul", reset, state_new)))
    # new + update * (previous - new)
    state = graph.op("Add", new, graph.op("Mul", update, graph.op("Sub", previous, new)))
    graph.output("memory.new.0", state, 1, hidden)
    return state


@torch.no_grad()
def make_graphs(model: Translator, agent: Agent | None, int8: bool) -> list[Graph]:
    graphs = [read_graph(model, int8), write_graph(model, int8), words_graph(model, int8)]
    return graphs if agent is None else [*graphs, agent_graph(agent, model.settings.width, int8)]
