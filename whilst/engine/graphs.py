"""The translator and the agent as ONNX graphs, one token of one sentence at a time.

Graphs return only what is new. Who calls them writes it into buffers of some capacity, if it is to count, and masks
what lies beyond the count: 0 for a column that may be seen, -inf for one that may not. Every layer's part of a
buffer is an input of its own, because a graph that takes a whole buffer apart has to copy it.

These are the weights and the arithmetic of model.py and agent.py; tests hold the two against each other.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from whilst.engine.graph_builder import Floats, Graph
from whilst.model.agent import Agent
from whilst.model.attention import Heads
from whilst.model.layers import DecoderLayer, EncoderLayer, Sublayer
from whilst.model.transformer import Translator


def floats(tensor: Tensor) -> Floats:
    return tensor.detach().cpu().numpy().astype(np.float32)


def linear(graph: Graph, value: str, layers: Sequence[nn.Linear], scale: float = 1.0) -> str:
    """Several layers of the same input as one: (1, in) -> (1, sum of out). `scale` multiplies the first."""
    weights, biases = [floats(layer.weight) for layer in layers], [floats(layer.bias) for layer in layers]
    weights[0], biases[0] = weights[0] * np.float32(scale), biases[0] * np.float32(scale)
    return graph.linear(value, np.concatenate(weights), np.concatenate(biases))


def norm(graph: Graph, value: str, layer: nn.Module) -> str:
    if isinstance(layer, nn.Identity):
        return value
    assert isinstance(layer, nn.LayerNorm)
    weight, bias = (graph.constant(floats(part)) for part in (layer.weight, layer.bias))
    return graph.op("LayerNormalization", value, weight, bias, attributes={"axis": -1, "epsilon": layer.eps})


def before(graph: Graph, value: str, sublayer: Sublayer) -> str:
    """What goes into a part of a layer."""
    return norm(graph, value, sublayer.norm) if sublayer.pre else value


def after(graph: Graph, value: str, change: str, sublayer: Sublayer) -> str:
    total = graph.op("Add", value, change)
    return total if sublayer.pre else norm(graph, total, sublayer.norm)


def size(attention: Heads) -> int:
    """Of one head."""
    return attention.query.in_features // attention.heads


def heads(graph: Graph, value: str, parts: int, attention: Heads) -> str:
    """(1, parts * width) -> (parts * heads, 1, size)."""
    return graph.op("Reshape", value, graph.whole(parts * attention.heads, 1, size(attention)))


def scores(graph: Graph, query: str, keys: str) -> str:
    """(heads, 1, size) x (heads, keys, size) -> (heads, 1, keys)."""
    return graph.op("MatMul", query, graph.op("Transpose", keys, attributes={"perm": [0, 2, 1]}))


def joined(graph: Graph, mixed: str, attention: Heads) -> str:
    """(heads, 1, size) -> (1, width), through the last layer of the attention."""
    flat = graph.op("Reshape", mixed, graph.whole(1, attention.query.in_features))
    return linear(graph, flat, [attention.out])


def cached(graph: Graph, name: str, layer: int, attention: Heads) -> tuple[str, str]:
    """A layer's part of a buffer: keys and values, (heads, capacity, size) each."""
    shape = attention.heads, f"{name}_capacity", size(attention)
    return graph.input(f"{name}.{layer}.keys", *shape), graph.input(f"{name}.{layer}.values", *shape)


def look_back(
    graph: Graph, value: str, attention: Heads, sublayer: Sublayer, cache: tuple[str, str], mask: str
) -> tuple[str, str]:
    """Self-attention of one token to the cache and to itself: (1, width), and its (2 * heads, 1, size).

    Its own key and value are not put beside the cached ones, which would copy those: what is put together is how
    well they fit.
    """
    layers = [attention.query, attention.key_value]
    made = linear(graph, before(graph, value, sublayer), layers, size(attention) ** -0.5)
    count = attention.heads
    query, key_value = graph.split(heads(graph, made, 3, attention), [count, 2 * count], 0)
    key, own = graph.split(key_value, [count, count], 0)
    known = graph.op("Add", scores(graph, query, cache[0]), mask)
    both = graph.op("Concat", known, scores(graph, query, key), attributes={"axis": 2})
    shares = graph.op("Softmax", both, attributes={"axis": 2})
    last = graph.whole(-1)
    past = graph.op("Slice", shares, graph.whole(0), last, graph.whole(2))
    mine = graph.op("Slice", shares, last, graph.whole(2**62), graph.whole(2))
    mixed = graph.op("Add", graph.op("MatMul", past, cache[1]), graph.op("Mul", mine, own))
    return after(graph, value, joined(graph, mixed, attention), sublayer), key_value


def look_across(
    graph: Graph, value: str, attention: Heads, sublayer: Sublayer, source: tuple[str, str], mask: str
) -> str:
    made = linear(graph, before(graph, value, sublayer), [attention.query], size(attention) ** -0.5)
    query = heads(graph, made, 1, attention)
    fit = graph.op("Add", scores(graph, query, source[0]), mask)
    mixed = graph.op("MatMul", graph.op("Softmax", fit, attributes={"axis": 2}), source[1])
    return after(graph, value, joined(graph, mixed, attention), sublayer)


def feed_forward(graph: Graph, value: str, layer: EncoderLayer | DecoderLayer) -> str:
    first, last = layer.feed_forward[0], layer.feed_forward[3]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    sublayer = layer.feed_forward_sublayer
    inner = graph.op("Relu", linear(graph, before(graph, value, sublayer), [first]))
    return after(graph, value, linear(graph, inner, [last]), sublayer)


def cross(layer: nn.Module) -> Heads:
    assert isinstance(layer, DecoderLayer)
    assert isinstance(layer.cross, Heads), "monotone heads have no graph"
    return layer.cross


def keys_values(graph: Graph, name: str, value: str, layers: nn.ModuleList, model: Translator) -> None:
    """An output (layers * 2 * heads, 1, size): the keys and values of all layers, keys first in each."""
    settings = model.settings
    graph.output(name, value, len(layers) * 2 * settings.heads, 1, settings.width // settings.heads)


def read_graph(model: Translator, int8: bool) -> Graph:
    graph = Graph("read", int8)
    state = graph.input("embedded", 1, model.settings.width)
    mask = graph.input("encoder.mask", "encoder_capacity")
    new = []
    for number, layer in enumerate(model.encoder):
        assert isinstance(layer, EncoderLayer)
        cache = cached(graph, "encoder", number, layer.attention)
        state, made = look_back(graph, state, layer.attention, layer.attention_sublayer, cache, mask)
        state = feed_forward(graph, state, layer)
        new.append(made)
    state = norm(graph, state, model.encoder_norm)
    graph.output("state", state, 1, model.settings.width)
    keys_values(graph, "encoder.new", graph.op("Concat", *new, attributes={"axis": 0}), model.encoder, model)
    across = [cross(layer) for layer in model.decoder]
    # What all decoder layers want of the source is one product.
    made = linear(graph, state, [attention.key_value for attention in across])
    keys_values(graph, "source.new", heads(graph, made, 2 * len(across), across[0]), model.decoder, model)
    return graph


def write_graph(model: Translator, int8: bool) -> Graph:
    graph = Graph("write", int8)
    state = graph.input("embedded", 1, model.settings.width)
    mask = graph.input("decoder.mask", "decoder_capacity")
    source_mask = graph.input("source.mask", "source_capacity")
    new = []
    for number, layer in enumerate(model.decoder):
        assert isinstance(layer, DecoderLayer)
        cache = cached(graph, "decoder", number, layer.attention)
        source = cached(graph, "source", number, cross(layer))
        state, made = look_back(graph, state, layer.attention, layer.attention_sublayer, cache, mask)
        state = look_across(graph, state, cross(layer), layer.cross_sublayer, source, source_mask)
        state = feed_forward(graph, state, layer)
        new.append(made)
    graph.output("state", norm(graph, state, model.decoder_norm), 1, model.settings.width)
    keys_values(graph, "decoder.new", graph.op("Concat", *new, attributes={"axis": 0}), model.decoder, model)
    return graph


def words_graph(model: Translator, int8: bool) -> Graph:
    """The output layer: the target embedding, which stays a table of floats too: a row of that costs nothing."""
    weight = floats(model.target_embedding.weight)
    graph = Graph("words", int8)
    graph.output("logits", graph.linear(graph.input("state", 1, weight.shape[1]), weight), 1, len(weight))
    return graph


def agent_graph(agent: Agent, width: int, int8: bool) -> Graph:
    graph = Graph("agent", int8)
    settings, hidden = agent.settings, agent.settings.hidden
    names = ["source", "target"]
    names += ["source_state", "target_state"] if settings.inputs != "embeddings" else []
    names += ["ahead"] if settings.inputs == "ahead" else []
    seen = graph.op("Concat", *(graph.input(name, 1, width) for name in names), attributes={"axis": 1})
    tokens = linear(graph, seen, [agent.tokens])
    # Each action is one of two, so that its layer is a table too.
    actions = graph.constant(floats(agent.action(agent.action_embedding.weight)))
    action = graph.op("Gather", actions, graph.input("action", 1, whole=True))
    latencies = graph.constant(floats(agent.latency.weight))
    latency = graph.op("Gather", latencies, graph.input("interval", 1, whole=True))
    inputs = graph.op("Concat", tokens, graph.op("Add", action, latency), attributes={"axis": 1})
    core = agent.core
    if isinstance(core, nn.LSTM):
        state = lstm(graph, core, inputs, hidden)
    elif isinstance(core, nn.GRU):
        state = gru(graph, core, inputs, hidden)
    else:
        assert isinstance(core, nn.Sequential)
        first = core[0]
        assert isinstance(first, nn.Linear)
        state = graph.op("Relu", linear(graph, inputs, [first]))
    graph.output("odds", linear(graph, state, [agent.out]), 1, 1)
    return graph


def lstm(graph: Graph, core: nn.LSTM, inputs: str, hidden: int) -> str:
    """One step of torch.nn.LSTM, whose gates come in the order input, forget, new, output."""
    before, cell = graph.input("memory.0", 1, hidden), graph.input("memory.1", 1, hidden)
    seen, known, *biases = (floats(part) for part in core.all_weights[0])
    weight, bias = np.concatenate([seen, known], 1), biases[0] + biases[1]
    gates = graph.linear(graph.op("Concat", inputs, before, attributes={"axis": 1}), weight, bias)
    enter, forget, new, leave = graph.split(gates, [hidden] * 4, 1)
    kept = graph.op("Mul", graph.op("Sigmoid", forget), cell)
    added = graph.op("Mul", graph.op("Sigmoid", enter), graph.op("Tanh", new))
    cell = graph.op("Add", kept, added)
    state = graph.op("Mul", graph.op("Sigmoid", leave), graph.op("Tanh", cell))
    graph.output("memory.new.0", state, 1, hidden)
    graph.output("memory.new.1", cell, 1, hidden)
    return state


def gru(graph: Graph, core: nn.GRU, inputs: str, hidden: int) -> str:
    """One step of torch.nn.GRU, whose gates come in the order reset, update, new."""
    before = graph.input("memory.0", 1, hidden)
    weights = [floats(part) for part in core.all_weights[0]]  # of the inputs, of the memory, and their biases
    seen, known = graph.linear(inputs, weights[0], weights[2]), graph.linear(before, weights[1], weights[3])
    seen_gates, seen_new = graph.split(seen, [2 * hidden, hidden], 1)
    known_gates, known_new = graph.split(known, [2 * hidden, hidden], 1)
    gates = graph.op("Sigmoid", graph.op("Add", seen_gates, known_gates))
    reset, update = graph.split(gates, [hidden, hidden], 1)
    new = graph.op("Tanh", graph.op("Add", seen_new, graph.op("Mul", reset, known_new)))
    # new + update * (before - new)
    state = graph.op("Add", new, graph.op("Mul", update, graph.op("Sub", before, new)))
    graph.output("memory.new.0", state, 1, hidden)
    return state


@torch.no_grad()
def graphs(model: Translator, agent: Agent | None, int8: bool) -> list[Graph]:
    made = [read_graph(model, int8), write_graph(model, int8), words_graph(model, int8)]
    return made if agent is None else [*made, agent_graph(agent, model.settings.width, int8)]
