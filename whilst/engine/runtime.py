"""Run an export with onnxruntime: live translation one token at a time, without PyTorch.

The methods of `EngineSession` mirror those of the translator: `read` takes a source token, `lookahead` computes the
state that would write the next token, `commit` writes it. `EngineAgent` runs the steps of an agent; fixed policies
are in live/engine_backend.py.

`engine_of` looks for the engine of a run in the run folder, then in the user's cache folder. If there is none, it
makes one, which needs PyTorch. The cache key is a checksum of the files that an engine is made from, so a cached
engine is never out of date. A complete engine is moved into the cache, so several processes may make one at once.
"""

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from whilst.core.config import build
from whilst.core.errors import UserError, note
from whilst.core.files import checked_manifest, sha256
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import MAX_POSITIONS, Model, Recipe
from whilst.data.vocabulary import BOS, EOS, Language
from whilst.model.run_folder import (
    AGENT,
    ENGINE_FORMAT,
    ENGINE_MANIFEST,
    SHIPPED,
    WEIGHTS,
    has_agent,
    weights_path,
)

FORMAT, MANIFEST = ENGINE_FORMAT, ENGINE_MANIFEST
READABLE = (2, FORMAT)  # 2: int8 graphs with unsigned weights
PRECISIONS = ("fp32", "int8")
FIRST_CAPACITY = 16  # columns of a new key/value buffer; a full one grows by as many, or by a quarter
Floats = NDArray[np.float32]


class BoundGraph:
    """A graph with the arrays that it reads and writes in place; each call overwrites its outputs.

    Inputs and outputs of a fixed shape get arrays of zeros; the caller binds the others.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._binding = graph.io_binding()
        self._arrays: dict[str, NDArray[Any]] = {}  # a binding does not keep its arrays alive
        self.inputs: dict[str, list[Any]] = {port.name: port.shape for port in graph.get_inputs()}  # shapes
        for port in graph.get_inputs():
            if all(isinstance(size, int) for size in port.shape):
                self.bind(port.name, np.zeros(port.shape, np.int64 if "int64" in port.type else np.float32))
        for port in graph.get_outputs():
            array = self._arrays[port.name] = np.zeros(port.shape, np.float32)
            self._binding.bind_output(port.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def bind(self, name: str, array: NDArray[Any]) -> None:
        """Use this array as an input."""
        assert array.flags.c_contiguous
        self._arrays[name] = array
        self._binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The array of an input or output."""
        return self._arrays[name]

    def row(self, output: str) -> Floats:
        """A copy of an output (1, size), as (size)."""
        return self._arrays[output].flatten()

    def __call__(self) -> None:
        self._graph.run_with_iobinding(self._binding)


class KeyValueBuffer:
    """Keys and values of several layers, (layers, 2, heads, capacity, head size), and a mask: inputs of one graph.

    A graph attends to the whole capacity, so the capacity stays close to the number of columns in use.
    """

    def __init__(self, name: str, graph: BoundGraph) -> None:
        self._name, self._graph = name, graph
        layers = sum(port.startswith(f"{name}.") and port.endswith(".keys") for port in graph.inputs)
        heads, _, head_size = graph.inputs[f"{name}.0.keys"]
        self._shape = layers, 2, heads, head_size
        self.count = 0  # columns in use
        self._allocate(FIRST_CAPACITY)

    def clear(self) -> None:
        self.count = 0
        if len(self.mask) != FIRST_CAPACITY:
            self._allocate(FIRST_CAPACITY)

    def _allocate(self, capacity: int) -> None:
        layers, parts, heads, size = self._shape
        # Zeros: a masked NaN would still make the weighted sum of the attention NaN.
        self.data: Floats = np.zeros((layers, parts, heads, capacity, size), np.float32)
        self.mask: Floats = np.zeros(capacity, np.float32)
        self._graph.bind(f"{self._name}.mask", self.mask)
        for number, (keys, values) in enumerate(self.data):
            self._graph.bind(f"{self._name}.{number}.keys", keys)
            self._graph.bind(f"{self._name}.{number}.values", values)

    def set_visible(self, count: int) -> None:
        """Mask all columns but the first `count`."""
        self.mask[:count] = 0
        self.mask[count:] = -np.inf

    def append(self, column: Floats) -> None:
        """Add (layers * 2 * heads, 1, head size)."""
        if self.count == len(self.mask):
            full = self.data
            self._allocate(self.count + max(FIRST_CAPACITY, self.count // 4))
            self.data[:, :, :, : self.count] = full
        self.data[:, :, :, self.count] = column.reshape(self.data.shape[:3] + self.data.shape[4:])
        self.count += 1


class EngineSession:
    """Translates one sentence, then others after `restart`."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine
        names = "read", "write", "words"
        self._read, self._write, self._words = (BoundGraph(engine.graphs[name]) for name in names)
        self._words.bind("state", self._write["state"])
        self._encoder = KeyValueBuffer("encoder", self._read)
        self._source = KeyValueBuffer("source", self._write)
        self._decoder = KeyValueBuffer("decoder", self._write)
        self.restart()

    def restart(self) -> None:
        """Begin another sentence in the same memory."""
        for buffer in (self._encoder, self._source, self._decoder):
            buffer.clear()
        self.last_read = self.last_written = BOS
        self.wrote = False  # whether the last action was a WRITE
        self.encoded: Floats = np.zeros_like(self._read["state"][0])  # (width) state of the last token read
        self.decoded: Floats = np.zeros_like(self._write["state"][0])  # (width) state of the last token written
        self._forget_next()

    def _forget_next(self) -> None:
        """Discard the next state and token, which are out of date after every action."""
        self._next_state: Floats | None = None
        self._next_token: int | None = None

    @property
    def read_count(self) -> int:
        return self._source.count

    @property
    def written_count(self) -> int:
        return self._decoder.count

    def _embed(self, graph: BoundGraph, table: str, token: int, position: int) -> None:
        tables = self.engine.tables
        if position >= len(tables["positions"]):
            raise UserError(f"a sentence of more than {position} units is too long; split it")
        if not 0 <= token < len(tables[table]):
            raise ValueError(f"{table} unit {token}: there are only {len(tables[table])}")
        np.add(tables[table][token], tables["positions"][position], out=graph["embedded"][0])

    def read(self, token: int) -> Floats:
        """READ a source token: (width) its encoder state."""
        self._embed(self._read, "source", token, self.read_count)
        self._encoder.set_visible(self._encoder.count)
        self._read()
        self._encoder.append(self._read["encoder.new"])
        self._source.append(self._read["source.new"])
        self.last_read, self.wrote = token, False
        self.encoded = self._read.row("state")
        self._forget_next()
        return self.encoded

    def lookahead(self) -> Floats:
        """(width) the decoder state that would write the next token now; computed once after each action."""
        if self._next_state is None:
            assert self.read_count, "call read first"
            self._embed(self._write, "target", self.last_written, self.written_count)
            self._decoder.set_visible(self._decoder.count)
            self._source.set_visible(self.read_count)
            self._write()
            self._next_state = self._write.row("state")
        return self._next_state

    def logits(self) -> Floats:
        """(target units) logits of the next token."""
        self.lookahead()
        self._words()
        return self._words.row("logits")

    def next_token(self, banned: Sequence[int] = ()) -> int:
        """The most likely next token, never pad, bos or a `banned` one; computed once after each action."""
        if self._next_token is None:
            logits = self.logits()
            logits[list(banned)] = -np.inf
            self._next_token = int(logits[EOS:].argmax()) + EOS
        return self._next_token

    def commit(self, token: int) -> None:
        """WRITE this token: the lookahead state becomes part of the decoder's cache."""
        self.decoded = self.lookahead()
        self._decoder.append(self._write["decoder.new"])
        self.last_written, self.wrote = token, True
        self._forget_next()


class EngineAgent:
    """The agent's state in a session. `log_odds` (of WRITE) must be called once after every action."""

    def __init__(self, session: EngineSession, interval: int) -> None:
        """`session`: one that has just begun. `interval`: the index of the latency."""
        self._session = session
        self._graph = BoundGraph(session.engine.graphs["agent"])
        self._graph["interval"][0] = interval
        self._memory = [name for name in self._graph.inputs if name.startswith("memory.")]

    def restart(self) -> None:
        for name in self._memory:
            self._graph[name].fill(0)

    def log_odds(self) -> float:
        session, graph, tables = self._session, self._graph, self._session.engine.tables
        graph["source"][0] = tables["source"][session.last_read]
        graph["target"][0] = tables["target"][session.last_written]
        if "source_state" in graph.inputs:
            graph["source_state"][0], graph["target_state"][0] = session.encoded, session.decoded
        if "ahead" in graph.inputs:
            graph["ahead"][0] = session.lookahead()
        graph["action"][0] = session.wrote
        graph()
        for name in self._memory:
            graph[name][:] = graph[name.replace("memory", "memory.new")]
        return float(graph["odds"][0, 0])


@dataclass(frozen=True)
class Engine:
    """The loaded tables and graphs. Sessions share them, and each session may run in its own thread."""

    # Source and target embeddings and positions, (rows, width) each; in half precision if that is exact.
    tables: Mapping[str, NDArray[np.floating]]
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
    length_ratio: tuple[int, int] | None  # J and I of the training data; None if the dataset was missing
    weights: str  # checksum of the run's weights


def is_export(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def export_obstacle(model: Model) -> str:
    """Why such a model cannot be exported; empty if it can."""
    if model.encoder == "bidirectional":
        return "this model's encoder needs the whole source, so it cannot read token by token"
    if model.cross == "monotone":
        return "a model whose heads decide when to READ (MMA) cannot be exported"
    return ""


def load_exported(folder: Path, precision: str = "int8") -> Exported:
    """Load what `whilst export` made, after a check of its files."""
    if precision not in PRECISIONS:
        raise UserError(f"precision {precision}: write {' or '.join(PRECISIONS)}")
    if not is_export(folder):
        raise UserError(f"{folder}: not an exported run (no {MANIFEST}); `whilst export` makes one")
    manifest = checked_manifest(folder / MANIFEST, READABLE, set(), "export the run again")
    try:
        recipe = build(Recipe, manifest["recipe"])
        ratio = None if manifest["pace"] is None else (int(manifest["pace"][0]), int(manifest["pace"][1]))
        agents, weights = [PolicySpec.parse(str(name)) for name in manifest["agents"]], str(manifest["weights"])
        stored = folder / f"tables.{precision}.safetensors"
        stored = stored if stored.is_file() else folder / "tables.safetensors"  # the name in older exports
        tables = read_tables(load_file(stored))
    except (KeyError, IndexError, TypeError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: is damaged ({error}); export the run again") from None
    names = ["read", "write", "words"] + (["agent"] if agents else [])
    files = {name: folder / f"{name}.{precision}.onnx" for name in names}
    if not all(file.is_file() for file in files.values()):
        raise UserError(f"{folder}: was exported without {precision}; choose the other precision, or export again")
    graphs = {name: load_graph(file.read_bytes()) for name, file in files.items()}
    languages = Language.load(folder, "source"), Language.load(folder, "target")
    return Exported(folder, recipe, *languages, Engine(tables, graphs), precision, agents, ratio, weights)


def read_tables(stored: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.floating]]:
    """Convert stored tables for an engine: multiply embeddings by their scales, and compute those of positions."""
    tables = {side: stored[side] for side in ("source", "target")}
    for side in tables:
        if f"{side}.scale" in stored:  # 8-bit integers
            tables[side] = stored[side].astype(np.float32) * stored[f"{side}.scale"][:, None]
    if "positions" in stored:  # in older exports
        return tables | {"positions": stored["positions"]}
    angles = np.arange(MAX_POSITIONS + 1, dtype=np.float32)[:, None] * stored["rates"]
    return tables | {"positions": np.concatenate([np.sin(angles), np.cos(angles)], axis=1)}


def load_graph(file: bytes) -> Any:
    """Load a graph to run in one thread: products with one row take less time than waking a second thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    if not has_vnni():  # make signed weights unsigned: the same products, without overflow
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


@functools.cache
def has_vnni() -> bool:
    """Whether the CPU adds products of 8-bit integers in 32 bits; False if the system does not report it."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            flags = next((line.split() for line in file if line.startswith("flags")), [])
    except OSError:
        return False
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(flags)


def cache_folder() -> Path:
    """The cache folder by the XDG Base Directory specification. Raises an OSError if there is none."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (named if named.is_absolute() else Path("~/.cache").expanduser()) / "whilst"
    except RuntimeError as error:  # the user has no home folder
        raise OSError(str(error)) from None


def cache_key(run: Path) -> str:
    """Checksum of everything that an export is made from."""
    files = [run / "recipe.json", weights_path(run), *sorted(run.glob("source.*")), *sorted(run.glob("target.*"))]
    files += [run / AGENT / "recipe.json", run / AGENT / WEIGHTS] if has_agent(run) else []
    sums = [f"{path.relative_to(run)} {sha256(path)}" for path in files]
    return hashlib.sha256("\n".join([f"format {FORMAT}", *sums]).encode()).hexdigest()[:32]


def has_shipped(run: Path, precision: str) -> bool:
    return (run / SHIPPED / f"read.{precision}.onnx").is_file()


def engine_of(run: Path, precision: str) -> Exported:
    """The engine of a run: shipped with it, cached, or made now; made in memory if nothing can be cached."""
    if has_shipped(run, precision):
        return load_exported(run / SHIPPED, precision)
    try:
        entry = cache_folder() / "engines" / f"{cache_key(run)}.{precision}"
        if is_export(entry):
            try:
                return load_exported(entry, precision)
            except UserError:  # damaged
                shutil.rmtree(entry)
        note(f"making the CPU engine of {run} (only once: it is kept in {entry.parent})")
        _make(run, entry, precision)
    except OSError as error:
        from whilst.engine.export import export_in_memory, load_exportable

        reason = error.strerror or error
        note(f"the CPU engine of {run} cannot be cached ({reason}); XDG_CACHE_HOME names another folder")
        return export_in_memory(load_exportable(run), precision)
    return load_exported(entry, precision)


def _make(run: Path, entry: Path, precision: str) -> None:
    from whilst.engine.export import load_exportable, write_engine

    trained = load_exportable(run)
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new.", dir=entry.parent) as folder:
        new = Path(folder, entry.name)
        new.mkdir()
        write_engine(trained, new, [precision])
        try:
            new.rename(entry)
        except OSError:
            if not is_export(entry):  # otherwise another process was first, with the same result
                raise
