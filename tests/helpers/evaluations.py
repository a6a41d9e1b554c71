"""Records of evaluations that never took place, for the tests of what reports make of them."""

from typing import Any

from whilst.evaluation.metrics import Scores
from whilst.evaluation.record import Record

SIGNATURE = {"bleu": "nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0"}


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
    """Only system, policy, AL and BLEU matter to most; `steps` makes another recipe, `seed` does not."""
    scores = Scores(100, 1, al, 1.4, al - 0.1, al + 0.2, 0.61, al + 0.4, bleu, bleu, bleu, SIGNATURE)
    settings: dict[str, Any] = {
        "run": f"runs/{seed}",
        "start": f"runs/base-{seed}",
        "train": {"steps": steps, "seed": seed},
        "search": {"intervals": [[1, 5], [3, 7], [5, 9]], "train": {"seed": seed}},
        "evaluate": {"split": split, "policies": [policy] * seed},
    }
    trace = f"{system}-{policy}-{seed}.jsonl.xz"
    weights, command = f"c{seed}", "whilst evaluate"
    return Record(system, policy, pair, split, scores, trace, "a", "b", settings, weights, command, 1.5, "cpu", {})
