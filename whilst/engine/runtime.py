"""Runs an exported run with onnxruntime: live translation one token at a time, without PyTorch.

A session's methods mirror the translator's: `read` takes a source token, `lookahead` computes the state that would
write the next token, `commit` writes it. Also runs the steps of a learnt agent; other policies live elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from whilst.core.config import build
from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Model, Recipe
from whilst.data.vocabulary import BOS, Language

FORMAT = 2
MANIFEST = "engine.json"
PRECISIONS = ("fp32", "int8")
FIRST_CAPACITY = 64  # columns of a new key/value buffer; doubled when they are full
Floats = NDArray[np.float32]


class BoundGraph:
    """A graph with the arrays that it reads and writes in place; each call overwrites its outputs."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._binding = graph.io_binding()
        self._arrays: dict[str, NDArray[Any]] = {}  # a binding does not keep its arrays alive
        self.inputs: dict[str, list[Any]] = {port.name: port.shape for port in graph.get_inputs()}  # shapes
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


class KeyValueBuffer:
    """Keys and values of several layers, (layers, 2, heads, capacity, head size), and a mask: inputs of one graph.

    A graph attends to the whole capacity, so every sentence starts with a small one, or sentences after a long one
    would be slow. The allocation below only grows and is reused.
    """

    def __init__(self, name: str, graph: BoundGraph) -> None:
        self._name, self._graph = name, graph
        layers = sum(port.startswith(f"{name}.") and port.endswith(".keys") for port in graph.inputs)
        heads, _, head_size = graph.inputs[f"{name}.0.keys"]
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
        inputs = {f"{self._name}.mask": self.mask}
        for number, (keys, values) in enumerate(self.data):
            inputs |= {f"{self._name}.{number}.keys": keys, f"{self._name}.{number}.values": values}
        self._graph.bind(inputs)

    def clear(self) -> None:
        self.count = 0
        if len(self.mask) != FIRST_CAPACITY:
            self._resize(FIRST_CAPACITY)

    def set_visible(self, count: int) -> None:
        """Mask all columns but the first `count`."""
        self.mask[:count] = 0
        self.mask[count:] = -np.inf

    def append(self, column: Floats) -> None:
        """Add (layers * 2 * heads, 1, head size)."""
        if self.count == len(self.mask):
            self._resize(2 * self.count)
        self.data[:, :, :, self.count] = column.reshape(self.data.shape[:3] + self.data.shape[4:])
        self.count += 1


class EngineSession:
    """The translation of one sentence, then of another."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        names = "read", "write", "words"
        self._read, self._write, self._words = (BoundGraph(engine.graphs[name]) for name in names)
        self._encoder = KeyValueBuffer("encoder", self._read)
        self._source = KeyValueBuffer("source", self._write)
        self._decoder = KeyValueBuffer("decoder", self._write)
        self._embedded: Floats = np.zeros(self._read.inputs["embedded"], np.float32)
        for graph in (self._read, self._write):
            graph.bind({"embedded": self._embedded})
        self._words.bind({"state": self._write["state"]})
        self.restart()

    def restart(self) -> None:
        """Begin another sentence in the same memory."""
        for buffer in (self._encoder, self._source, self._decoder):
            buffer.clear()
        self.lookahead_state: Floats | None = None  # (width) of the last `lookahead`, until the next action
        self.last_read = self.last_written = BOS
        self.wrote = False  # whether the last action was a WRITE
        self.encoded: Floats = np.zeros_like(self._embedded[0])  # (width) state of the last token read
        self.decoded: Floats = np.zeros_like(self._embedded[0])  # (width) state of the last token written

    @property
    def read_count(self) -> int:
        return self._source.count

    @property
    def written_count(self) -> int:
        return self._decoder.count

    def _embed(self, table: str, token: int, position: int) -> None:
        tables = self.engine.tables
        if position >= len(tables["positions"]):
            raise UserError(f"a sentence of more than {position} units is too long; split it")
        if not 0 <= token < len(tables[table]):
            raise ValueError(f"{table} unit {token}: there are only {len(tables[table])}")
        np.add(tables[table][token], tables["positions"][position], out=self._embedded[0])

    def read(self, token: int) -> Floats:
        """READ a source token: (width) its encoder state."""
        self._embed("source", token, self.read_count)
        self._encoder.set_visible(self._encoder.count)
        self._read()
        self._encoder.append(self._read["encoder.new"])
        self._source.append(self._read["source.new"])
        self.last_read, self.wrote, self.lookahead_state = token, False, None
        self.encoded = self._read.row("state")
        return self.encoded

    def lookahead(self) -> Floats:
        """(width) the decoder state that would write the next token now."""
        assert self.read_count, "call read first"
        self._embed("target", self.last_written, self.written_count)
        self._decoder.set_visible(self._decoder.count)
        self._source.set_visible(self.read_count)
        self._write()
        self.lookahead_state = self._write.row("state")
        return self.lookahead_state

    def logits(self) -> Floats:
        """(target units) of the next token, from the lookahead state."""
        assert self.lookahead_state is not None, "call lookahead first"
        self._words()
        return self._words.row("logits")

    def commit(self, token: int) -> None:
        """WRITE this token: the lookahead state becomes part of the decoder's cache."""
        assert self.lookahead_state is not None, "call lookahead first"
        self._decoder.append(self._write["decoder.new"])
        self.decoded, self.lookahead_state = self.lookahead_state, None
        self.last_written, self.wrote = token, True


class EngineAgent:
    """The agent's state in a session. `log_odds`, those of WRITE, must be called once after every action."""

    def __init__(self, session: EngineSession, interval: int) -> None:
        """For a session that has just begun; `interval` is the index of the latency."""
        if "agent" not in session.engine.graphs:
            raise UserError("this run has no agent: train one and export it again, or choose another policy")
        self._session, self._tables = session, session.engine.tables
        self._graph = BoundGraph(session.engine.graphs["agent"])
        shapes = self._graph.inputs
        self._state = {name: np.zeros(shapes[name], np.float32) for name in shapes if name.startswith("memory.")}
        self._action = np.zeros(1, np.int64)
        own: dict[str, NDArray[Any]] = {
            "action": self._action,
            "interval": np.array([interval], np.int64),
            **self._state,
        }
        self._observed: dict[str, Floats] = {
            name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name not in own
        }
        self.needs_lookahead = "ahead" in self._observed  # before every `log_odds`
        self._graph.bind(own | self._observed)

    def restart(self) -> None:
        for part in self._state.values():
            part.fill(0)

    def log_odds(self) -> float:
        session, observed = self._session, self._observed
        observed["source"][0] = self._tables["source"][session.last_read]
        observed["target"][0] = self._tables["target"][session.last_written]
        if "source_state" in observed:
            observed["source_state"][0], observed["target_state"][0] = session.encoded, session.decoded
        if "ahead" in observed:
            assert session.lookahead_state is not None, "call lookahead first"
            observed["ahead"][0] = session.lookahead_state
        self._action[0] = session.wrote
        self._graph()
        for name, part in self._state.items():
            part[:] = self._graph[name.replace("memory", "memory.new")]
        return float(self._graph["odds"][0, 0])


@dataclass(frozen=True)
class Engine:
    """The loaded graphs. Sessions share them and may run in threads of their own."""

    tables: dict[str, Floats]  # source and target embeddings and positions, (rows, width) each
    graphs: dict[str, Any]  # onnxruntime's sessions: read, write, words and, with an agent, agent


@dataclass(frozen=True)
class Exported:
    path: Path
    recipe: Recipe
    source: Language
    target: Language
    engine: Engine
    precision: str
    agents: list[PolicySpec]  # policies of the agent, in the order of its latencies
    length_ratio: tuple[int, int] | None  # J and I of the training data, if its dataset was there
    weights: str  # checksum of the run's weights


def is_export(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def export_obstacle(model: Model) -> str:
    """Why such a model cannot be exported; empty if it can."""
    if model.encoder == "bidirectional":
        return "this model's encoder needs the whole source, so it cannot go token by token"
    if model.cross == "monotone":
        return "a model whose heads decide when to READ (MMA) cannot be exported"
    return ""


def load_exported(folder: Path, precision: str = "int8", threads: int = 1) -> Exported:
    """Load what `whilst export` made, after a check of its files. `threads`: used by each call of a graph."""
    if precision not in PRECISIONS:
        raise UserError(f"precision {precision}: write {' or '.join(PRECISIONS)}")
    manifest = read_manifest(folder)
    try:
        recipe = build(Recipe, manifest["recipe"])
        ratio = None if manifest["pace"] is None else (int(manifest["pace"][0]), int(manifest["pace"][1]))
        agents, weights = [PolicySpec.parse(str(name)) for name in manifest["agents"]], str(manifest["weights"])
        stored = load_file(folder / "tables.safetensors")
        tables = {name: table.astype(np.float32) for name, table in stored.items()}
    except (KeyError, IndexError, TypeError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: is damaged ({error}); export the run again") from None
    names = ["read", "write", "words"] + (["agent"] if agents else [])
    files = {name: folder / f"{name}.{precision}.onnx" for name in names}
    if not all(file.is_file() for file in files.values()):
        raise UserError(f"{folder}: was exported without {precision}; choose the other one, or export it again")
    graphs = {name: load_graph(file.read_bytes(), threads) for name, file in files.items()}
    languages = Language.load(folder, "source"), Language.load(folder, "target")
    return Exported(folder, recipe, *languages, Engine(tables, graphs), precision, agents, ratio, weights)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read engine.json and check the files that it lists."""
    if not is_export(folder):
        raise UserError(f"{folder}: not an exported run (no {MANIFEST}); `whilst export` makes one")
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or "files" not in manifest:
        raise UserError(f"{folder}: {MANIFEST} is damaged or of another version of whilst; export the run again")
    for name, checksum in manifest["files"].items():
        path = folder / name
        if not path.is_file() or sha256(path) != checksum:
            raise UserError(f"{folder}: {name} is missing or damaged; export the run again")
    return manifest


def load_graph(file: bytes, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Spinning threads would take time from other sessions.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
