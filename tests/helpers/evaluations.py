"""Records of evaluations that never took place, for the tests of reports."""

from typing import Any

from whilst.evaluation.metrics import Scores
from whilst.evaluation.record import Record

SIGNATURE = {"bleu": "nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0"}
TRAINED: dict[str, dict[str, Any]] = {  # settings of the systems; the policy tells oracle and diagonal
    "full-sentence": {"objective": {"name": "full"}},
    "wait-k": {"objective": {"name": "wait-k"}},
    "multi-path": {"objective": {"name": "multi-path"}},
    "mma": {"objective": {"name": "mma"}, "model": {"cross": "monotone"}},
    "bs-simt": {"objective": {"name": "search"}},
    "bs-simt (multi-path)": {"objective": {"name": "multi-path"}},
    "bs-simt (from scratch)": {"objective": {"name": "search"}, "start": ""},
}


def make(
    system: str,
    policy: str,
    al: float,
    bleu: float | None,
    pair: str = "iwslt15.en-vi",
    split: str = "test",
    seed: int = 1,
    steps: int = 100,
) -> Record:
    """`steps` makes another recipe, `seed` does not. A system that is not in TRAINED is of another toolkit."""
    scores = Scores(100, 1, al, 1.4, al - 0.1, al + 0.2, 0.61, al + 0.4, bleu, bleu, bleu, SIGNATURE)
    train = {"steps": steps, "seed": seed}
    settings: dict[str, Any] = {
        "run": f"runs/{seed}",
        "start": f"runs/base-{seed}",
        "train": train,
        "search": {"intervals": [[1, 5], [3, 7], [5, 9]], "train": train},
        "evaluate": {"split": split, "policies": [policy] * (seed + 1)},
        **TRAINED.get(system.removesuffix(" oracle").removesuffix(" (diagonal)"), {"of": "another toolkit"}),
    }
    return Record(
        title=system,
        policy=policy,
        pair=pair,
        split=split,
        scores=scores,
        trace=f"{system}-{policy}-{seed}.jsonl.xz",
        source_sha256="a",
        reference_sha256="b",
        settings=settings,
        model_sha256=f"c{seed}",
        command="whilst evaluate",
        seconds=1.5,
        device="cpu",
        versions={},
    )
