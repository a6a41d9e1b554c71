"""The `bundle` command: a trained run as a small folder that can be shipped, also with the package (whilst/models).

A bundle is a run folder: recipe, languages, weights in half precision (they become floats when loaded), the agent.
Beside them lie bundle.json, with checksums and what else it must know without its dataset, and README.md, its card.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch

import whilst
from whilst.core.console import notes
from whilst.core.errors import UserError
from whilst.core.files import read_json, read_text, sha256, sha256_lines, write_json, writing_text
from whilst.core.policy_spec import LATENCIES, PolicySpec, for_latency
from whilst.core.settings import Recipe
from whilst.data.dataset import Dataset
from whilst.engine.export import find_pace, making
from whilst.evaluation.evaluate import choose, to_sentence, translate_lines
from whilst.evaluation.metrics import Scores, score
from whilst.evaluation.trace import Sentence
from whilst.model.checkpoint import Trained, load_run, load_tensors, save_tensors, write_recipe, write_run
from whilst.model.run_folder import (
    AGENT,
    BUNDLE,
    BUNDLE_FORMAT,
    WEIGHTS,
    check_bundle,
    choose_live,
    has_agent,
    read_recipe,
)

LARGEST = 25_000_000  # bytes
CPU = torch.device("cpu")
CARD, NEW_CARD = "README.md", "README.new.md"


@dataclass(frozen=True)
class Comparison:
    """The test set under one policy, before and after."""

    policy: PolicySpec
    different: int  # sentences that are not the same words
    run: Scores
    bundle: Scores

    def __str__(self) -> str:
        bleu = f"BLEU {self.run.bleu:.2f} -> {self.bundle.bleu:.2f}"
        share = f"{self.different} of {self.run.sentences} test sentences differ"
        return f"{share} under {self.policy}, {bleu}, AL {self.run.al:.2f} -> {self.bundle.al:.2f}"


def bundle(run: Path, out: Path) -> tuple[int, Comparison | None]:
    """Its size in bytes, and how it translates beside the run, if the dataset is there."""
    empty = out.is_dir() and not any(out.iterdir())
    if out.exists() and not empty and not (out / BUNDLE).is_file():
        raise UserError(f"{out}: is there already and is no earlier bundle; name another folder")
    home, policy, _ = choose_live(run, "medium")
    trained = load_run(home, CPU)
    with making(out) as folder:
        write_halves(trained, folder, out.name)
        require_small(folder, run)
        made = load_run(folder, CPU)
        compared = compare(trained, made, policy)
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        about = {
            "format": BUNDLE_FORMAT,
            "whilst": whilst.__version__,
            "weights": trained.checksum,  # of the run
            "pace": find_pace(trained),
            "compared": None if compared is None else str(compared),
            "files": {name: sha256(folder / name) for name in files},
        }
        said = card(made, out.name, compared)
        write_json(folder / BUNDLE, about | {"card": sha256_lines([said])})
        write_card(folder, said, card_by_hand(out))
        check_bundle(folder)
        size = require_small(folder, run)
    return size, compared


def portable(recipe: Recipe, name: str) -> Recipe:
    """Without the folders of the machine that it was trained on."""
    data = dataclasses.replace(recipe.data, folder="", dataset=f"data/{Path(recipe.data.dataset).name}")
    teacher = recipe.teacher and f"runs/{Path(recipe.teacher).name}"  # it was taught: that belongs to the record
    return dataclasses.replace(recipe, run=name, start="", teacher=teacher, data=data)


def write_halves(trained: Trained, folder: Path, name: str) -> None:
    """All that makes it a run."""
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
    about.pop("start", None)  # a file in single precision, which does not come along
    save_tensors(target, halves, about)
    target.chmod(0o644)  # safetensors are their owner's alone, but this is for all


def require_small(folder: Path, run: Path) -> int:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > LARGEST:
        most = f"{LARGEST / 1e6:.0f} MB, some {LARGEST / 2e6:.0f} M parameters, is the most"
        raise UserError(f"{run}: would be a bundle of {size / 1e6:.1f} MB, but {most}; train a smaller model")
    return size


def compare(trained: Trained, made: Trained, policy: PolicySpec) -> Comparison | None:
    """Both on the test set; nothing if it is not there."""
    try:
        dataset = Dataset.open(Path(trained.recipe.data.dataset))
        sources, references = dataset.text(trained.recipe.evaluate.split)
    except UserError:
        return None

    def translate(model: Trained) -> list[Sentence]:
        settings = trained.recipe.evaluate
        outputs = translate_lines(model, sources, choose(policy, model, settings, None), settings)
        rows = zip(sources, references, outputs, strict=True)
        return [to_sentence(index, *row, model) for index, row in enumerate(rows)]

    before, after = translate(trained), translate(made)
    different = sum(one.prediction != other.prediction for one, other in zip(before, after, strict=True))
    return Comparison(policy, different, score(before, references), score(after, references))


def card(made: Trained, name: str, compared: Comparison | None) -> str:
    """What a person should know of it."""
    data, model = made.recipe.data, made.recipe.model
    modules = [made.model] if made.agent is None else [made.model, made.agent]
    count = sum(parameter.numel() for module in modules for parameter in module.parameters())
    size = f"{model.encoder_layers} + {model.decoder_layers} layers, width {model.width}, {model.heads} heads"
    rows = {
        "languages": f"{data.source} to {data.target}",
        "text": "lower-cased" if data.lowercase else "cased",
        "parameters": f"{count / 1e6:.1f} M ({size}); half precision in the file, single in use",
        "units": f"{data.units}: {len(made.source):,} of the source, {len(made.target):,} of the target",
        "trained on": data.corpus or Path(data.dataset).name,
        "latencies": ", ".join(f"{latency}: {for_latency(latency, made.agents)[0]}" for latency in LATENCIES),
        "test set": "not measured" if compared is None else measured(compared),
    }
    table = "\n".join(f"| {left} | {right} |" for left, right in rows.items())
    return f"""# {name}

A simultaneous translator, made with whilst {whilst.__version__}.

    whilst live --model PATH/TO/{name}

| | |
|---|---|
{table}

It knows the kind of text that it was trained on. Expect mistakes, most of them far from that text and at low
latency: it writes before it has heard everything, and does not take back what it wrote.
"""


def card_by_hand(out: Path) -> str | None:
    """The card of an earlier bundle there, if somebody has changed it since."""
    path = out / CARD
    if not path.is_file():
        return None
    text = read_text(path)
    return None if read_json(out / BUNDLE).get("card") == sha256_lines([text]) else text


def write_card(folder: Path, said: str, by_hand: str | None) -> None:
    """What a person wrote stays; what there is to say now then lies beside it."""
    texts = {CARD: said} if by_hand is None else {CARD: by_hand, NEW_CARD: said}
    for name, text in texts.items():
        with writing_text(folder / name) as file:
            file.write(text)
    if by_hand is not None:
        notes.print(f"{CARD} was written by hand and stays; the new one is {NEW_CARD}")


def measured(compared: Comparison) -> str:
    scores = compared.bundle
    figures = f"BLEU {scores.bleu:.2f}, sacreBLEU {scores.sacrebleu:.2f}, AL {scores.al:.2f}"
    same = f"{scores.sentences} sentences, of which half precision changes {compared.different}"
    return f"{figures} under {compared.policy} ({same})"
