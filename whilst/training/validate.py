"""Validation during training: loss and BLEU on the development set."""

import math
from dataclasses import dataclass, field

import torch

from whilst.core.settings import Recipe
from whilst.data.batches import batches_by_length
from whilst.data.dataset import Dataset
from whilst.decoding.batched import translate
from whilst.evaluation.metrics import paper_bleu
from whilst.model.monotonic_attention import MonotonicPass
from whilst.model.transformer import Translator, decode_batch
from whilst.policy import Policy
from whilst.policy.fixed import Full, WaitK
from whilst.policy.learnt import Monotonic
from whilst.training.losses import cross_entropy, latency_cost
from whilst.training.sampling import draw_reads


@dataclass(frozen=True)
class Validation:
    loss: float  # per token or decision, without label smoothing
    bleu: float | None = None
    figures: dict[str, float] = field(default_factory=dict)  # other measurements, by name

    def better(self, other: "Validation | None", keep: str) -> bool:
        if other is None:
            return True
        if math.isnan(self.loss) or math.isnan(other.loss):
            return not math.isnan(self.loss)
        if keep == "bleu" and self.bleu is not None and other.bleu is not None and self.bleu != other.bleu:
            return self.bleu > other.bleu
        return self.loss < other.loss


def validation_policy(recipe: Recipe) -> Policy:
    """The policy of the validation BLEU."""
    if recipe.model.cross == "monotone":
        return Monotonic()
    k = recipe.train.validate_k
    return WaitK(k) if k and recipe.model.encoder == "causal" else Full()


@torch.inference_mode()
def validate(model: Translator, recipe: Recipe, dataset: Dataset) -> Validation:
    """The training objective without smoothing, with the same random reads every time, and greedy BLEU.

    Monotonic heads stop as they do in decoding. In training they attend to an expectation over all stopping points,
    whose loss may be lower.
    """
    model.eval()
    device = model.target_embedding.weight.device
    split = dataset.split("valid")
    random = torch.Generator().manual_seed(0)
    total, tokens = torch.zeros((), device=device, dtype=torch.float64), 0
    for batch in batches_by_length(split, recipe.train.batch_tokens):
        batch = batch.to(device)
        reads = draw_reads(model, recipe, batch, random)
        monotonic = MonotonicPass(hard=True)
        states = decode_batch(model, batch, reads, monotonic)
        total += cross_entropy(model, states, batch.labels, 0.0)
        if monotonic.delays:
            total += latency_cost(monotonic.delays, batch, recipe.objective.latency_average)
        tokens += batch.target_tokens
    bleu = None
    if recipe.train.validate_bleu:
        policy = validation_policy(recipe)
        sources = [split.source[i].tolist() for i in range(len(split.source))]
        limits = recipe.evaluate.limits
        outputs = translate(model, sources, policy, limits, recipe.evaluate.batch, "validating")
        words = [" ".join(dataset.target.decode(output.units)) for output in outputs]
        bleu = paper_bleu(words, dataset.text("valid")[1]).score
    return Validation(total.item() / tokens, bleu)
