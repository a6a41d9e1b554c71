"""The `bundle` command: a trained run as a small folder that can be shipped, also with the package (whilst/models).

A bundle is a run folder: recipe, languages, weights in half precision (single when loaded), the agent. It also has
the exported engine in int8 (engine/), a model card (README.md), and bundle.json: checksums, and figures that need
the dataset.
"""

import dataclasses
from pathlib import Path

import torch

import whilst
from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.files import read_json, read_text, sha256, sha256_lines, write_json, writing_text
from whilst.core.policy_spec import LATENCIES, PolicySpec, for_latency
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.decoding.policies import policy_for
from whilst.engine.engine_cache import SHIPPED
from whilst.engine.export import length_ratio, replacing, write_engine
from whilst.engine.runtime import export_obstacle
from whilst.evaluation.evaluate import to_sentence, translate_lines
from whilst.evaluation.metrics import score
from whilst.evaluation.trace import Sentence
from whilst.model.checkpoint import LoadedRun, load_run, load_tensors, save_tensors, write_recipe, write_run
from whilst.model.run_folder import (
    AGENT,
    BUNDLE,
    BUNDLE_FORMAT,
    WEIGHTS,
    check_bundle,
    choose_policy,
    has_agent,
    read_recipe,
)

MAX_BYTES = 25_000_000  # without the engine
CPU = torch.device("cpu")
CARD, NEW_CARD = "README.md", "README.new.md"


def bundle(run: Path, out: Path) -> tuple[int, str | None]:
    """Size in bytes, and how bundle and run differ on the test set (see `compare`)."""
    home, policy, _ = choose_policy(run, "medium")
    trained = load_run(home, CPU)
    with replacing(out, BUNDLE) as folder:
        write_half_precision(trained, folder, out.name)
        if (size := size_of(folder)) > MAX_BYTES:
            limit = f"{MAX_BYTES / 1e6:.0f} MB, some {MAX_BYTES / 2e6:.0f} M parameters, is the most"
            raise UserError(f"{run}: would be a bundle of {size / 1e6:.1f} MB, but {limit}; train a smaller model")
        made = load_run(folder, CPU)
        compared = compare(trained, made, policy)
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        text = model_card(made, out.name, compared)
        about = {
            "format": BUNDLE_FORMAT,
            "whilst": whilst.__version__,
            "weights": trained.checksum,  # of the run
            "pace": length_ratio(trained),
            "compared": compared,
            "files": {name: sha256(folder / name) for name in files},
            "card": sha256_lines([text]),
        }
        write_json(folder / BUNDLE, about)
        write_card(folder, text, out)
        check_bundle(folder)
        if not export_obstacle(made.recipe.model):
            (folder / SHIPPED).mkdir()
            write_engine(made, folder / SHIPPED, ["int8"])
        return size_of(folder), compared


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def portable(recipe: Recipe, name: str) -> Recipe:
    """Without the folders of the machine that it was trained on."""
    data = dataclasses.replace(recipe.data, folder="", dataset=f"data/{Path(recipe.data.dataset).name}")
    teacher = recipe.teacher and f"runs/{Path(recipe.teacher).name}"
    return dataclasses.replace(recipe, run=name, start="", teacher=teacher, data=data)


def write_half_precision(trained: LoadedRun, folder: Path, name: str) -> None:
    """Write everything that makes it a run."""
    write_run(folder, portable(trained.recipe, name), trained.source, trained.target)
    halve(trained.path / WEIGHTS, folder / WEIGHTS)
    if has_agent(trained.path):
        recipe = read_recipe(trained.path / AGENT)
        write_recipe(folder / AGENT, portable(recipe, f"{name}/{AGENT}"))
        halve(trained.path / AGENT / WEIGHTS, folder / AGENT / WEIGHTS)


def halve(source: Path, target: Path) -> None:
    tensors, about = load_tensors(source, CPU)
    halves = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    for name, tensor in halves.items():
        if not tensor.isfinite().all():
            raise UserError(f"{source}: {name} has weights too large for half precision")
    about.pop("start", None)  # checksum of a file in single precision, which the bundle does not have
    save_tensors(target, halves, about)
    target.chmod(0o644)  # safetensors makes files that only their owner can read


def compare(trained: LoadedRun, made: LoadedRun, policy: PolicySpec) -> str | None:
    """How run and bundle differ on the test set; None if it is not here."""
    settings = trained.recipe.evaluate
    try:
        sources, references = Dataset.open(Path(trained.recipe.data.dataset)).text(settings.split)
    except UserError:
        return None

    def translate(model: LoadedRun) -> list[Sentence]:
        outputs = translate_lines(model, sources, policy_for(model, policy, settings), settings)
        rows = zip(sources, references, outputs, strict=True)
        return [to_sentence(index, *row, model) for index, row in enumerate(rows)]

    before, after = translate(trained), translate(made)
    different = sum(one.prediction != other.prediction for one, other in zip(before, after, strict=True))
    old, new = score(before, references), score(after, references)
    quality = f"BLEU {old.bleu:.2f} -> {new.bleu:.2f}, sacreBLEU {old.sacrebleu:.2f} -> {new.sacrebleu:.2f}"
    share = f"{different} of {len(sources)} test sentences differ under {policy}"
    return f"{share}, {quality}, AL {old.al:.2f} -> {new.al:.2f}"


def model_card(made: LoadedRun, name: str, compared: str | None) -> str:
    data, model = made.recipe.data, made.recipe.model
    modules = filter(None, (made.model, made.agent))
    count = sum(parameter.numel() for module in modules for parameter in module.parameters())
    size = f"{model.encoder_layers} + {model.decoder_layers} layers, width {model.width}, {model.heads} heads"
    rows = {
        "languages": f"{data.source} to {data.target}",
        "text": "lower-cased" if data.lowercase else "cased",
        "parameters": f"{count / 1e6:.1f} M ({size}); half precision in the file, single in use",
        "units": f"{data.units}: {len(made.source):,} of the source, {len(made.target):,} of the target",
        "trained on": data.corpus or Path(data.dataset).name,
        "latencies": ", ".join(f"{latency}: {for_latency(latency, made.agents)[0]}" for latency in LATENCIES),
        "test set": compared or "not measured",
    }
    table = "\n".join(f"| {left} | {right} |" for left, right in rows.items())
    return f"""# {name}

A simultaneous translator, made with whilst {whilst.__version__}.

    whilst live --model PATH/TO/{name}

| | |
|---|---|
{table}

It knows the kind of text that it was trained on. Expect mistakes, most of them far from that text and at low
latency: it writes before it has read everything, and does not take back what it wrote.
"""


def write_card(folder: Path, text: str, out: Path) -> None:
    """Write the model card. If that of an earlier bundle was edited, it stays, and the new one lies beside it."""
    edited = (out / CARD).is_file() and read_json(out / BUNDLE).get("card") != sha256_lines([read_text(out / CARD)])
    with writing_text(folder / (NEW_CARD if edited else CARD)) as file:
        file.write(text)
    if edited:  # `replacing` keeps it
        notes.print(f"{CARD} was written by hand and stays; the new one is {NEW_CARD}")
