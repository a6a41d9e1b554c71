"""The translator and the agent as ONNX graphs: one step of one sentence each.

Graphs return only new columns of the key/value buffers; the caller appends them. Masks are added to scores: 0 for a
visible column, -inf for one that is not. Every layer's part of a buffer is an input of its own, because slicing one
tensor inside of the graph would copy it.

The same weights and arithmetic as model/transformer.py and model/agent.py; tests compare the two.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from whilst.core.errors import UserError
from whilst.engine.runtime import Floats, agent_inputs
from whilst.model.agent import Agent
from whilst.model.attention import Heads
from whilst.model.layers import DecoderLayer, EncoderLayer, Sublayer
from whilst.model.transformer import Translator

OPSET, IR = 21, 10  # supported by onnxruntime 1.20 and later
MAX_BYTES = 2**31 - 2**20  # an ONNX file ends at 2 GiB


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

    def constant(self, value: NDArray[Any]) -> str:
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


def floats(tensor: Tensor) -> Floats:
    return tensor.detach().cpu().numpy().astype(np.float32)


def linear(graph: Graph, value: str, layers: Sequence[nn.Module], scale: float = 1.0) -> str:
    """Several layers of the same input as one: (1, in) -> (1, sum of out). `scale` multiplies the first."""
    weights, biases = [], []
    for layer in layers:
        assert isinstance(layer, nn.Linear)
        weights.append(floats(layer.weight))
        biases.append(floats(layer.bias))
    weights[0], biases[0] = weights[0] * np.float32(scale), biases[0] * np.float32(scale)
    return graph.linear(value, np.concatenate(weights), np.concatenate(biases))


def norm(graph: Graph, value: str, layer: nn.Module) -> str:
    if isinstance(layer, nn.Identity):
        return value
    assert isinstance(layer, nn.LayerNorm)
    weight, bias = (graph.constant(floats(part)) for part in (layer.weight, layer.bias))
    return graph.op("LayerNormalization", value, weight, bias, attributes={"axis": -1, "epsilon": layer.eps})


def pre_norm(graph: Graph, value: str, sublayer: Sublayer) -> str:
    return norm(graph, value, sublayer.norm) if sublayer.pre else value


def residual(graph: Graph, value: str, change: str, sublayer: Sublayer) -> str:
    total = graph.op("Add", value, change)
    return total if sublayer.pre else norm(graph, total, sublayer.norm)


def head_size(attention: Heads) -> int:
    return attention.query.in_features // attention.heads


def split_heads(graph: Graph, value: str, parts: int, attention: Heads) -> str:
    """(1, parts * width) -> (parts * heads, 1, head size)."""
    return graph.op("Reshape", value, graph.integers(parts * attention.heads, 1, head_size(attention)))


def merge_heads(graph: Graph, value: str, attention: Heads) -> str:
    """(heads, 1, head size) -> (1, width), through the output layer of the attention."""
    flat = graph.op("Reshape", value, graph.integers(1, attention.query.in_features))
    return linear(graph, flat, [attention.out])


def scores(graph: Graph, query: str, keys: str) -> str:
    """(heads, 1, head size) x (heads, keys, head size) -> (heads, 1, keys)."""
    return graph.op("MatMul", query, graph.op("Transpose", keys, attributes={"perm": [0, 2, 1]}))


def cache_inputs(graph: Graph, name: str, layer: int, attention: Heads) -> tuple[str, str]:
    """A layer's keys and values of a buffer, (heads, capacity, head size) each."""
    shape = attention.heads, f"{name}_capacity", head_size(attention)
    return graph.input(f"{name}.{layer}.keys", *shape), graph.input(f"{name}.{layer}.values", *shape)


def self_attention(
    graph: Graph, value: str, attention: Heads, sublayer: Sublayer, cache: tuple[str, str], mask: str
) -> tuple[str, str]:
    """One token attends to the cache and to itself: (1, width), and its keys and values (2 * heads, 1, head size).

    Concatenating its key and value with the cached ones would copy the cache, so the scores are concatenated.
    """
    layers = [attention.query, attention.key_value]
    projected = linear(graph, pre_norm(graph, value, sublayer), layers, head_size(attention) ** -0.5)
    heads = attention.heads
    query, key_value = graph.split(split_heads(graph, projected, 3, attention), [heads, 2 * heads], 0)
    key, own_value = graph.split(key_value, [heads, heads], 0)
    cached = graph.op("Add", scores(graph, query, cache[0]), mask)
    both = graph.op("Concat", cached, scores(graph, query, key), attributes={"axis": 2})
    weights = graph.op("Softmax", both, attributes={"axis": 2})
    last = graph.integers(-1)
    past = graph.op("Slice", weights, graph.integers(0), last, graph.integers(2))
    own = graph.op("Slice", weights, last, graph.integers(2**62), graph.integers(2))
    mixed = graph.op("Add", graph.op("MatMul", past, cache[1]), graph.op("Mul", own, own_value))
    return residual(graph, value, merge_heads(graph, mixed, attention), sublayer), key_value


def cross_attention(
    graph: Graph, value: str, attention: Heads, sublayer: Sublayer, source: tuple[str, str], mask: str
) -> str:
    normed = pre_norm(graph, value, sublayer)
    query = split_heads(graph, linear(graph, normed, [attention.query], head_size(attention) ** -0.5), 1, attention)
    masked = graph.op("Add", scores(graph, query, source[0]), mask)
    mixed = graph.op("MatMul", graph.op("Softmax", masked, attributes={"axis": 2}), source[1])
    return residual(graph, value, merge_heads(graph, mixed, attention), sublayer)


def feed_forward(graph: Graph, value: str, layer: EncoderLayer | DecoderLayer) -> str:
    first, last, sublayer = layer.feed_forward[0], layer.feed_forward[3], layer.feed_forward_sublayer
    inner = graph.op("Relu", linear(graph, pre_norm(graph, value, sublayer), [first]))
    return residual(graph, value, linear(graph, inner, [last]), sublayer)


def cross_of(layer: nn.Module) -> Heads:
    assert isinstance(layer, DecoderLayer)
    assert isinstance(layer.cross, Heads), "monotone heads have no graph"
    return layer.cross


def output_columns(graph: Graph, name: str, columns: Sequence[str], attention: Heads) -> None:
    """Output (layers * 2 * heads, 1, head size): new keys and values of all layers, keys first in each."""
    joined = graph.op("Concat", *columns, attributes={"axis": 0})
    graph.output(name, joined, len(columns) * 2 * attention.heads, 1, head_size(attention))


def read_graph(model: Translator, int8: bool) -> Graph:
    """A source token: its encoder state, its keys and values in the encoder and for cross-attention."""
    graph = Graph("read", int8)
    state = graph.input("embedded", 1, model.settings.width)
    mask = graph.input("encoder.mask", "encoder_capacity")
    columns = []
    for number, layer in enumerate(model.encoder):
        assert isinstance(layer, EncoderLayer)
        cache = cache_inputs(graph, "encoder", number, layer.attention)
        state, column = self_attention(graph, state, layer.attention, layer.attention_sublayer, cache, mask)
        state = feed_forward(graph, state, layer)
        columns.append(column)
    state = norm(graph, state, model.encoder_norm)
    graph.output("state", state, 1, model.settings.width)
    crosses = [cross_of(layer) for layer in model.decoder]
    output_columns(graph, "encoder.new", columns, crosses[0])
    # One product for all decoder layers.
    projected = linear(graph, state, [attention.key_value for attention in crosses])
    count = 2 * len(crosses)
    keys_values = split_heads(graph, projected, count, crosses[0])
    graph.output("source.new", keys_values, count * crosses[0].heads, 1, head_size(crosses[0]))
    return graph


def write_graph(model: Translator, int8: bool) -> Graph:
    """The last target token: the decoder state that writes the next one, and its keys and values."""
    graph = Graph("write", int8)
    state = graph.input("embedded", 1, model.settings.width)
    mask = graph.input("decoder.mask", "decoder_capacity")
    source_mask = graph.input("source.mask", "source_capacity")
    columns = []
    for number, layer in enumerate(model.decoder):
        assert isinstance(layer, DecoderLayer)
        cross = cross_of(layer)
        cache = cache_inputs(graph, "decoder", number, layer.attention)
        source = cache_inputs(graph, "source", number, cross)
        state, column = self_attention(graph, state, layer.attention, layer.attention_sublayer, cache, mask)
        state = cross_attention(graph, state, cross, layer.cross_sublayer, source, source_mask)
        state = feed_forward(graph, state, layer)
        columns.append(column)
    graph.output("state", norm(graph, state, model.decoder_norm), 1, model.settings.width)
    output_columns(graph, "decoder.new", columns, cross)
    return graph


def words_graph(model: Translator, int8: bool) -> Graph:
    """The output layer: decoder state -> logits. Its weights are the target embedding."""
    weight = floats(model.target_embedding.weight)
    graph = Graph("words", int8)
    graph.output("logits", graph.linear(graph.input("state", 1, weight.shape[1]), weight), 1, len(weight))
    return graph


def agent_graph(agent: Agent, width: int, int8: bool) -> Graph:
    """One step of the agent: log-odds of WRITE, and its new state."""
    graph = Graph("agent", int8)
    names = agent_inputs(agent.settings.inputs)
    observed = graph.op("Concat", *(graph.input(name, 1, width) for name in names), attributes={"axis": 1})
    tokens = linear(graph, observed, [agent.tokens])
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
        state = graph.op("Relu", linear(graph, inputs, [agent.core[0]]))
    graph.output("odds", linear(graph, state, [agent.out]), 1, 1)
    return graph


def lstm(graph: Graph, core: nn.LSTM, inputs: str) -> str:
    """One step of torch.nn.LSTM; its gates are ordered input, forget, cell, output."""
    hidden = core.hidden_size
    previous, cell = graph.input("memory.0", 1, hidden), graph.input("memory.1", 1, hidden)
    from_input, from_state, *biases = (floats(part) for part in core.all_weights[0])
    weight, bias = np.concatenate([from_input, from_state], 1), biases[0] + biases[1]
    gates = graph.linear(graph.op("Concat", inputs, previous, attributes={"axis": 1}), weight, bias)
    enter, forget, new, leave = graph.split(gates, [hidden] * 4, 1)
    remaining = graph.op("Mul", graph.op("Sigmoid", forget), cell)
    added = graph.op("Mul", graph.op("Sigmoid", enter), graph.op("Tanh", new))
    cell = graph.op("Add", remaining, added)
    state = graph.op("Mul", graph.op("Sigmoid", leave), graph.op("Tanh", cell))
    graph.output("memory.new.0", state, 1, hidden)
    graph.output("memory.new.1", cell, 1, hidden)
    return state


def gru(graph: Graph, core: nn.GRU, inputs: str) -> str:
    """One step of torch.nn.GRU; its gates are ordered reset, update, new."""
    hidden = core.hidden_size
    previous = graph.input("memory.0", 1, hidden)
    weights = [floats(part) for part in core.all_weights[0]]  # of inputs, of the state, and their biases
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
