"""Times CTranslate2 with weights of whilst: whole sentences, or wait-k by translating every prefix anew.

    python ctranslate2_worker.py float32|int8 batches|alone|LENGTH FOLDER

FOLDER has work.json (sizes, sources) and weights.npz, the state of a `Translator`. LENGTH: wait-k on a source of so
many units. Prints {"version": …, "seconds": …, "outputs": …}, the units written.
"""

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

EOS = 2
NEVER = -1e4  # added to the logits of pad and bos, which whilst never writes

Weights = dict[str, NDArray[np.float32]]


def fill(part: Any, weights: Weights, *names: str) -> None:
    """A linear layer, joined from several, or a norm."""
    kinds = ("gamma", "beta") if "norm" in names[0] else ("weight", "bias")
    for own, kind in zip(kinds, ("weight", "bias"), strict=True):
        setattr(part, own, np.concatenate([weights[f"{name}.{kind}"] for name in names]))


def convert(work: dict[str, Any], weights: Weights, folder: Path) -> None:
    """Write the model in the format of CTranslate2."""
    specs = importlib.import_module("ctranslate2.specs")
    spec = specs.TransformerSpec.from_config((work["encoder_layers"], work["decoder_layers"]), work["heads"])
    for name, side in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        side.position_encodings.encodings = weights["sinusoids"]
        fill(side.layer_norm, weights, f"{name}_norm")
        for number, layer in enumerate(side.layer):
            own, attention = f"{name}.{number}", layer.self_attention
            fill(attention.layer_norm, weights, f"{own}.attention_sublayer.norm")
            fill(attention.linear[0], weights, f"{own}.attention.query", f"{own}.attention.key_value")
            fill(attention.linear[1], weights, f"{own}.attention.out")
            if name == "decoder":
                fill(layer.attention.layer_norm, weights, f"{own}.cross_sublayer.norm")
                for linear, part in zip(layer.attention.linear, ("query", "key_value", "out"), strict=True):
                    fill(linear, weights, f"{own}.cross.{part}")
            fill(layer.ffn.layer_norm, weights, f"{own}.feed_forward_sublayer.norm")
            fill(layer.ffn.linear_0, weights, f"{own}.feed_forward.0")
            fill(layer.ffn.linear_1, weights, f"{own}.feed_forward.3")
    spec.encoder.embeddings[0].weight = weights["source_embedding.weight"]
    target = weights["target_embedding.weight"]
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = target
    spec.decoder.projection.bias = np.where(np.arange(len(target)) < EOS, NEVER, 0).astype(np.float32)
    source_count, target_count = work["units"]
    spec.register_source_vocabulary(units(source_count))
    spec.register_target_vocabulary(units(target_count))
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir()
    spec.save(str(folder))


def units(count: int) -> list[str]:
    return ["<pad>", "<s>", "</s>", "<unk>", *map(str, range(4, count))]


def main(precision: str, what: str, folder: Path) -> None:
    engine = importlib.import_module("ctranslate2")
    work = json.loads((folder / "work.json").read_text(encoding="utf-8"))
    converted = folder / "ctranslate2"
    if not converted.is_dir():
        with np.load(folder / "weights.npz") as weights:
            convert(work, dict(weights), converted)
    translator = engine.Translator(
        str(converted), "cpu", compute_type=precision, inter_threads=1, intra_threads=work["threads"]
    )

    def translate(sources: list[list[str]], longest: int, prefix: list[str]) -> list[list[str]]:
        given = [prefix] * len(sources) if prefix else None
        found = translator.translate_batch(
            sources, target_prefix=given, beam_size=1, max_decoding_length=longest, max_batch_size=work["batch"]
        )
        return [result.hypotheses[0] for result in found]

    def run() -> list[list[str]]:
        sources = [[*map(str, source[:-1]), "</s>"] for source in work["sources"]]
        if what == "batches":
            return translate(sources, len(sources[0]), [])
        if what == "alone":
            return [translate([source], len(source), [])[0] for source in sources[: work["alone"]]]
        source, written = list(map(str, work["long"][: int(what)])), list[str]()
        for count in range(1, len(source) + 1):
            [written] = translate([source[: work["k"] + count - 1]], count, written)
        return [written]

    run()  # to warm up
    began = time.perf_counter()
    outputs = run()
    print(json.dumps({"version": engine.__version__, "seconds": time.perf_counter() - began, "outputs": outputs}))


if __name__ == "__main__":
    precision, what, folder = sys.argv[1:]
    main(precision, what, Path(folder))
