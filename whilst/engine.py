"""Runs an exported run with onnxruntime: one live translation a session, one token at a time, without PyTorch.

A session's calls mirror those of the translator: `read` takes a source token, `look` tells what would be written
now, `commit` makes it count. Policies are not its business, but it does the steps of a learnt agent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from whilst.config import build
from whilst.errors import UserError
from whilst.files import read_json, sha256
from whilst.settings import Recipe
from whilst.vocab import BOS, Language

FORMAT = 1
ABOUT = "engine.json"
PRECISIONS = ("fp32", "int8")
FIRST_CAPACITY = 64  # columns of a new buffer; it doubles when they are used up

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class OfAgent:
    hidden: int
    inputs: str  # embeddings, states or ahead
    memories: int  # vectors that it remembers: 2 for an LSTM, 1 for a GRU
    intervals: int  # latencies that it serves


@dataclass(frozen=True)
class Sizes:
    width: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    positions: int  # the longest source and the longest target
    agent: OfAgent | None

    @classmethod
    def of(cls, table: dict[str, Any]) -> "Sizes":
        agent = None if table["agent"] is None else OfAgent(**table["agent"])
        return cls(**{**table, "agent": agent})


class Buffer:
    """Keys and values of some layers, (layers, 2, heads, capacity, size), and a mask of what may be seen."""

    def __init__(self, name: str, layers: int, sizes: Sizes) -> None:
        self.name = name
        shape = layers, 2, sizes.heads, FIRST_CAPACITY, sizes.width // sizes.heads
        self.data: Floats = np.zeros(shape, np.float32)
        self.mask: Floats = np.full(FIRST_CAPACITY, -np.inf, np.float32)
        self.count = 0

    def show(self, count: int) -> None:
        self.mask[:count] = 0
        self.mask[count:] = -np.inf

    def append(self, new: Floats) -> bool:
        """One more column, (layers * 2 * heads, 1, size). True if everything moved to a larger place for it."""
        grown = self.count == len(self.mask)
        if grown:
            self.data = np.concatenate([self.data, np.zeros_like(self.data)], 3)
            self.mask = np.concatenate([self.mask, np.full_like(self.mask, -np.inf)])
        self.data[:, :, :, self.count] = new.reshape(self.data.shape[:3] + self.data.shape[4:])
        self.count += 1
        return grown

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


class Session:
    """One sentence under way."""

    def __init__(self, engine: "Engine") -> None:
        self._engine, sizes = engine, engine.sizes
        self._encoder = Buffer("encoder", sizes.encoder_layers, sizes)
        self._source = Buffer("source", sizes.decoder_layers, sizes)
        self._decoder = Buffer("decoder", sizes.decoder_layers, sizes)
        self._read, self._write, self._words = (Call(engine.graphs[name]) for name in ("read", "write", "words"))
        self._embedded: Floats = np.zeros((1, sizes.width), np.float32)
        self._read.bind({"embedded": self._embedded} | self._encoder.inputs())
        self._write.bind({"embedded": self._embedded} | self._decoder.inputs() | self._source.inputs())
        self._words.bind({"state": self._write["state"]})
        self._looked = False
        self.last_read = self.last_written = BOS
        self.wrote = False  # whether the last action was a WRITE
        self.decoded: Floats = np.zeros(sizes.width, np.float32)  # state of the last token written

    @property
    def read_count(self) -> int:
        return self._source.count

    @property
    def written_count(self) -> int:
        return self._decoder.count

    def _embed(self, table: str, token: int, place: int) -> None:
        tables = self._engine.tables
        if place >= self._engine.sizes.positions:
            raise UserError(f"a sentence of more than {place} units is too long; split it")
        if not 0 <= token < len(tables[table]):
            raise ValueError(f"{table} unit {token}: there are only {len(tables[table])}")
        np.add(tables[table][token], tables["positions"][place], out=self._embedded[0])

    def read(self, token: int) -> Floats:
        """READ one more source token: (width) its encoder state."""
        self._embed("source", token, self.read_count)
        self._encoder.show(self._encoder.count)
        self._read()
        if self._encoder.append(self._read["encoder.new"]):
            self._read.bind(self._encoder.inputs())
        if self._source.append(self._read["source.new"]):
            self._write.bind(self._source.inputs())
        self.last_read, self.wrote, self._looked = token, False, False
        return self.encoded

    @property
    def encoded(self) -> Floats:
        """(width) the encoder state of the last source token."""
        state: Floats = self._read["state"][0].copy()
        return state

    def look(self, reads: int | None = None) -> Floats:
        """(width) the state that would write the next token now, under these reads (default: all that was read)."""
        reads = self.read_count if reads is None else reads
        if not 1 <= reads <= self.read_count:
            raise ValueError(f"{reads} reads, but {self.read_count} source tokens were read")
        self._embed("target", self.last_written, self.written_count)
        self._decoder.show(self._decoder.count)
        self._source.show(reads)
        self._write()
        self._looked = True
        return self.ahead()

    def ahead(self) -> Floats:
        """(width) what `look` has seen."""
        assert self._looked, "look first"
        state: Floats = self._write["state"][0].copy()
        return state

    def logits(self) -> Floats:
        """(target units) of the token that `look` would write."""
        assert self._looked, "look first"
        self._words()
        found: Floats = self._words["logits"][0].copy()
        return found

    def commit(self, token: int) -> None:
        """WRITE: what `look` saw counts, and this is the token that came of it."""
        self.decoded = self.ahead()
        if self._decoder.append(self._write["decoder.new"]):
            self._write.bind(self._decoder.inputs())
        self.last_written, self.wrote, self._looked = token, True, False


class Deciding:
    """The agent's side of a session: to be asked once after every action."""

    def __init__(self, engine: "Engine", session: Session, interval: int) -> None:
        sizes = engine.sizes
        if sizes.agent is None:
            raise UserError("this run has no agent: train one and export it again, or choose another policy")
        if not 0 <= interval < sizes.agent.intervals:
            raise UserError(f"the agent knows {sizes.agent.intervals} latencies, counted from 0: not {interval}")
        self._engine, self._session = engine, session
        self._call = Call(engine.graphs["agent"])
        names = ["source", "target"]
        names += ["source_state", "target_state"] if sizes.agent.inputs != "embeddings" else []
        names += ["ahead"] if sizes.agent.inputs == "ahead" else []
        self._seen: dict[str, Floats] = {name: np.zeros((1, sizes.width), np.float32) for name in names}
        self._memory = [np.zeros((1, sizes.agent.hidden), np.float32) for _ in range(sizes.agent.memories)]
        self._action = np.zeros(1, np.int64)
        self._call.bind(self._seen | {f"memory.{number}": part for number, part in enumerate(self._memory)})
        self._call.bind({"action": self._action, "interval": np.array([interval], np.int64)})

    @property
    def looks_ahead(self) -> bool:
        return "ahead" in self._seen

    def odds(self) -> float:
        """Log-odds of WRITE. An agent that looks ahead wants the session's `look` first."""
        session, seen = self._session, self._seen
        seen["source"][0] = self._engine.tables["source"][session.last_read]
        seen["target"][0] = self._engine.tables["target"][session.last_written]
        if "source_state" in seen:
            seen["source_state"][0], seen["target_state"][0] = session.encoded, session.decoded
        if "ahead" in seen:
            seen["ahead"][0] = session.ahead()
        self._action[0] = session.wrote
        self._call()
        for number, part in enumerate(self._memory):
            part[:] = self._call[f"memory.new.{number}"]
        return float(self._call["odds"][0, 0])


@dataclass(frozen=True)
class Engine:
    """The graphs, loaded. Any number of sessions may share it, each in a thread of its own if wanted."""

    sizes: Sizes
    tables: dict[str, Floats]  # source and target embeddings and positions, (rows, width) each
    graphs: dict[str, Any]  # onnxruntime's sessions: read, write, words and perhaps agent

    def start(self) -> Session:
        return Session(self)

    def decide(self, session: Session, interval: int = 0) -> Deciding:
        """An agent for a session that has just begun; `interval` is the number of the latency that is wanted."""
        return Deciding(self, session, interval)


@dataclass(frozen=True)
class Exported:
    """An exported run and all that it takes to use it."""

    path: Path
    recipe: Recipe
    source: Language
    target: Language
    engine: Engine


def load_exported(folder: Path, precision: str = "int8", threads: int = 1) -> Exported:
    """What `whilst export` made; `threads` work at one call."""
    if precision not in PRECISIONS:
        raise UserError(f"precision {precision}: write {' or '.join(PRECISIONS)}")
    about = read_about(folder)
    try:
        sizes, recipe = Sizes.of(about["sizes"]), build(Recipe, about["recipe"])
        tables = load_file(folder / "tables.safetensors")
    except (KeyError, TypeError, SafetensorError) as error:
        raise UserError(f"{folder}: is damaged ({error}); export the run again") from None
    names = ["read", "write", "words"] + (["agent"] if sizes.agent else [])
    graphs = {name: load_graph((folder / f"{name}.{precision}.onnx").read_bytes(), threads) for name in names}
    languages = Language.load(folder, "source"), Language.load(folder, "target")
    return Exported(folder, recipe, *languages, Engine(sizes, tables, graphs))


def read_about(folder: Path) -> dict[str, Any]:
    """What engine.json says, after a look at whether the files are those that it speaks of."""
    if not (folder / ABOUT).is_file():
        raise UserError(f"{folder}: not an exported run (no {ABOUT}); `whilst export` makes one")
    about = read_json(folder / ABOUT)
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise UserError(f"{folder}: {ABOUT} is damaged or of another version of whilst; export the run again")
    for name, checksum in about["files"].items():
        path = folder / name
        if not path.is_file() or sha256(path) != checksum:
            raise UserError(f"{folder}: {name} is missing or damaged; export the run again")
    return about


def load_graph(file: bytes, threads: int) -> Any:
    """onnxruntime's session of a graph."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError("the engine needs the package onnxruntime: pip install 'whilst[onnx]'") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Threads that wait by spinning would take the time of other sessions.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
