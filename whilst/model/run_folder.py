"""Look up what a run folder contains, without loading weights: its settings, models and policies."""

from pathlib import Path

from whilst.core.config import override, read_recipe
from whilst.core.errors import UserError
from whilst.core.files import checked_manifest, read_json, sha256
from whilst.core.policy_spec import (
    AGENT_TRANSLATION,
    LATENCIES,
    PolicySpec,
    agent_policies,
    for_latency,
    parse_live,
)
from whilst.core.settings import Recipe, Role, names_with
from whilst.data.dataset import MANIFEST, length_ratio, read_manifest

WEIGHTS = "model.safetensors"
SEARCH = "search"  # sub-folder of the fine-tuned translator
BUNDLE = "bundle.json"  # manifest of a bundle (engine/export.py)
BUNDLE_FORMAT = 1
SHIPPED = "engine"  # sub-folder of a bundle: its export in int8
ENGINE_MANIFEST = "engine.json"  # of an export
ENGINE_FORMAT = 3
BASE_OBJECTIVE = "began_with"  # key in recipe.json
AGENT = "agent"  # sub-folder of the agent


def base_objective(recipe: Recipe, folder: Path | None = None) -> str:
    """The objective of the model that a run started from; "" if there is none or it is not known.

    The run's recipe.json records it, since the folder that the run started from may have been moved or deleted.
    """
    if folder is not None and (folder / "recipe.json").is_file():
        table = read_json(folder / "recipe.json")
        if table.get(BASE_OBJECTIVE) and table["recipe"]["start"] == recipe.start:
            return str(table[BASE_OBJECTIVE])
    start = Path(recipe.start)
    return read_recipe(start).objective.name if recipe.start and (start / "recipe.json").is_file() else ""


def weights_path(folder: Path) -> Path:
    """The file with the best weights of a run; for a bundle without weights, the manifest of its engine."""
    weights, engine = folder / WEIGHTS, folder / SHIPPED / ENGINE_MANIFEST
    if not weights.is_file() and engine.is_file():
        return engine
    if not weights.is_file():
        raise UserError(f"{folder}: no {WEIGHTS} yet; let `whilst train` reach its first validation")
    return weights


def weights_checksum(folder: Path) -> str:
    """SHA-256 of the weights of a run; for a bundle without weights, of those that its engine was made from."""
    path = weights_path(folder)
    return str(read_json(path)["weights"]) if path.name == ENGINE_MANIFEST else sha256(path)


def override_after_training(recipe: Recipe, overrides: list[str], folder: Path, *fixed: str) -> Recipe:
    """Apply overrides to a trained run. Sections that decide its weights, and those in `fixed`, cannot change."""
    changed = override(recipe, overrides)
    for section in sorted({name.partition(".")[0] for name in names_with(Role.FIXED)} | {*fixed}):
        if getattr(changed, section) != getattr(recipe, section):
            raise UserError(f"--set {section}.…: {folder} was trained with it; change it in `whilst train`")
    return changed


def has_agent(folder: Path) -> bool:
    return (folder / AGENT / WEIGHTS).is_file()


def agent_policies_of(folder: Path) -> list[PolicySpec]:
    """The policies of a run's agent, in the order of its latencies; none without an agent."""
    if not has_agent(folder):
        return []
    recipe = read_recipe(folder / AGENT)  # may be newer than the translator's
    return agent_policies(recipe.search.intervals, recipe.agent.labels)


def model_folder(run: Path, policy: PolicySpec) -> Path:
    """The folder of the model that a policy needs: for agents and oracles the fine-tuned one, if there is one."""
    tuned = run / SEARCH
    if policy.kind == "lag":
        return agent_folder(run)
    if policy.name == AGENT_TRANSLATION.name and has_agent(run):
        return run  # this agent needs no fine-tuned model
    return tuned if policy.kind in ("agent", "oracle") and (tuned / WEIGHTS).is_file() else run


def agent_folder(run: Path) -> Path:
    """The folder with the agent of the latencies low, medium and high; the run itself if there is no agent."""
    return next((folder for folder in (model_folder(run, PolicySpec("agent")), run) if has_agent(folder)), run)


def choose_policy(run: Path, latency: str) -> tuple[Path, PolicySpec, str]:
    """For a latency or a policy's name: the folder with the model, the policy, and a note for the user or ""."""
    if latency not in LATENCIES:
        policy = parse_live(latency)
        return model_folder(run, policy), policy, ""
    if read_recipe(run).model.cross == "monotone":
        return run, PolicySpec("mma"), "the heads of this run decide: it has one latency, mma"
    folder = agent_folder(run)
    return folder, *for_latency(latency, agent_policies_of(folder))


def length_ratio_of(folder: Path, recipe: Recipe) -> tuple[int, int]:
    """J and I of the whole training data, for diagonal-K: from a bundle's manifest, else from the dataset.

    The dataset is that of the run's own recipe if it still exists; `recipe` may name another one to evaluate on.
    """
    lengths = read_json(folder / BUNDLE)["pace"] if (folder / BUNDLE).is_file() else None
    if lengths is not None:
        return int(lengths[0]), int(lengths[1])
    dataset = Path(read_recipe(folder).data.dataset) if (folder / "recipe.json").is_file() else Path()
    return length_ratio(read_manifest(dataset if (dataset / MANIFEST).is_file() else Path(recipe.data.dataset)))


def check_bundle(folder: Path) -> None:
    """Compare a bundle's files with the checksums in its manifest."""
    checked_manifest(folder / BUNDLE, [BUNDLE_FORMAT], {"pace"}, "get or make the bundle again")
