"""Runs an exported run with onnxruntime: one live translation a session, one token at a time, without PyTorch.

A session's calls mirror those of the translator: `read` takes a source token, `look` tells what would be written
now, `commit` makes it count. Policies are not its business, but it does the steps of a learnt agent.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from whilst.core.config import build
from whilst.core.errors import UserError
from whilst.core.files import read_json, sha256
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Model, Recipe
from whilst.data.vocabulary import BOS, Language
from whilst.engine.buffers import Buffer, Call, Floats

FORMAT = 2
ABOUT = "engine.json"
PRECISIONS = ("fp32", "int8")


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


class Session:
    """One sentence under way, or one after another."""

    def __init__(self, engine: "Engine") -> None:
        self._engine, sizes = engine, engine.sizes
        heads, size = sizes.heads, sizes.width // sizes.heads
        self._encoder = Buffer("encoder", sizes.encoder_layers, heads, size)
        self._source = Buffer("source", sizes.decoder_layers, heads, size)
        self._decoder = Buffer("decoder", sizes.decoder_layers, heads, size)
        self._read, self._write, self._words = (Call(engine.graphs[name]) for name in ("read", "write", "words"))
        self._embedded: Floats = np.zeros((1, sizes.width), np.float32)
        self._read.bind({"embedded": self._embedded} | self._encoder.inputs())
        self._write.bind({"embedded": self._embedded} | self._decoder.inputs() | self._source.inputs())
        self._words.bind({"state": self._write["state"]})
        self.restart()

    def restart(self) -> None:
        """Forget the sentence and begin another one in the same memory."""
        if self._encoder.restart():
            self._read.bind(self._encoder.inputs())
        for buffer in (self._source, self._decoder):
            if buffer.restart():
                self._write.bind(buffer.inputs())
        self.looked = False  # since the last action
        self.last_read = self.last_written = BOS
        self.wrote = False  # whether the last action was a WRITE
        self.decoded: Floats = np.zeros(self._engine.sizes.width, np.float32)  # state of the last token written

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
        self.last_read, self.wrote, self.looked = token, False, False
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
        self.looked = True
        return self.ahead()

    def ahead(self) -> Floats:
        """(width) what `look` has seen."""
        assert self.looked, "look first"
        state: Floats = self._write["state"][0].copy()
        return state

    def logits(self) -> Floats:
        """(target units) of the token that `look` would write."""
        assert self.looked, "look first"
        self._words()
        found: Floats = self._words["logits"][0].copy()
        return found

    def commit(self, token: int) -> None:
        """WRITE: what `look` saw counts, and this is the token that came of it."""
        self.decoded = self.ahead()
        if self._decoder.append(self._write["decoder.new"]):
            self._write.bind(self._decoder.inputs())
        self.last_written, self.wrote, self.looked = token, True, False


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

    def restart(self) -> None:
        """The session begins another sentence."""
        for part in self._memory:
            part.fill(0)

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
    precision: str
    agents: list[PolicySpec]  # policies of the agent, in the order of its latencies
    pace: tuple[int, int] | None  # J and I of the training data, if its dataset was there
    weights: str  # checksum of those that it was made from


def unfit(model: Model) -> str:
    """Why such a model cannot be exported; empty if it can."""
    if model.encoder == "bidirectional":
        return "this model's encoder needs the whole source, so it cannot go token by token"
    if model.cross == "monotone":
        return "a model whose heads decide when to READ (MMA) cannot be exported"
    return ""


def load_exported(folder: Path, precision: str = "int8", threads: int = 1) -> Exported:
    """What `whilst export` made; `threads` work at one call."""
    return load_checked(folder, read_about(folder), precision, threads)


def load_checked(folder: Path, about: dict[str, Any], precision: str, threads: int = 1) -> Exported:
    """The same of a folder about which `read_about` has said this."""
    if precision not in PRECISIONS:
        raise UserError(f"precision {precision}: write {' or '.join(PRECISIONS)}")
    try:
        sizes, recipe = Sizes.of(about["sizes"]), build(Recipe, about["recipe"])
        pace = None if about["pace"] is None else (int(about["pace"][0]), int(about["pace"][1]))
        agents, weights = [PolicySpec.parse(str(name)) for name in about["agents"]], str(about["weights"])
        tables = load_file(folder / "tables.safetensors")
    except (KeyError, IndexError, TypeError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: is damaged ({error}); export the run again") from None
    names = ["read", "write", "words"] + (["agent"] if sizes.agent else [])
    files = {name: folder / f"{name}.{precision}.onnx" for name in names}
    if not all(file.is_file() for file in files.values()):
        raise UserError(f"{folder}: was exported without {precision}; choose the other one, or export it again")
    graphs = {name: load_graph(file.read_bytes(), threads) for name, file in files.items()}
    languages = Language.load(folder, "source"), Language.load(folder, "target")
    engine = Engine(sizes, tables, graphs)
    return Exported(folder, recipe, *languages, engine, precision, agents, pace, weights)


def read_about(folder: Path) -> dict[str, Any]:
    """What engine.json says, after a look at whether the files are those that it speaks of."""
    if not (folder / ABOUT).is_file():
        raise UserError(f"{folder}: not an exported run (no {ABOUT}); `whilst export` makes one")
    about = read_json(folder / ABOUT)
    if not isinstance(about, dict) or about.get("format") != FORMAT or "files" not in about:
        raise UserError(f"{folder}: {ABOUT} is damaged or of another version of whilst; export the run again")
    for name, checksum in about["files"].items():
        path = folder / name
        if not path.is_file() or sha256(path) != checksum:
            raise UserError(f"{folder}: {name} is missing or damaged; export the run again")
    return about


def load_graph(file: bytes, threads: int) -> Any:
    """onnxruntime's session of a graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Threads that wait by spinning would take the time of other sessions.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
