"""Times training updates of a peer: PyTorch's nn.Transformer in a plain loop, or Joey NMT's model.

    python train_worker.py torch|joeynmt FOLDER

FOLDER has work.json (sizes and settings) and batches.npz: `source`, `input` and `labels` of each batch, padded with
0. Prints {"version": …, "seconds": …} of all updates, done once before to warm up.
"""

import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PAD = 0
Work = dict[str, Any]
Peer = tuple[nn.Module, Callable[..., Tensor]]  # and the summed loss of source, decoder input and labels


class Plain(nn.Module):
    """nn.Transformer with embeddings, the target's also as the output layer."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        width, dropout = work["width"], work["dropout"]
        self.embeddings = nn.ModuleList(nn.Embedding(units, width, padding_idx=PAD) for units in work["units"])
        sizes = work["heads"], work["encoder_layers"], work["decoder_layers"], work["feed_forward"]
        self.body = nn.Transformer(width, *sizes, dropout, batch_first=True, norm_first=True)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("positions", torch.rand(work["positions"], width), persistent=False)
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=work["smoothing"], reduction="sum")

    def embed(self, side: int, tokens: Tensor) -> Tensor:
        states = self.embeddings[side](tokens)
        added = states * states.shape[-1] ** 0.5 + self.get_buffer("positions")[: tokens.shape[1]]
        embedded: Tensor = self.dropout(added)
        return embedded

    def forward(self, source: Tensor, given: Tensor, labels: Tensor) -> Tensor:
        padding = source == PAD
        states = self.body(
            self.embed(0, source),
            self.embed(1, given),
            tgt_mask=torch.ones(given.shape[1], given.shape[1], dtype=torch.bool).triu(1),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        loss: Tensor = self.loss((states @ self.embeddings[1].weight.T).flatten(0, 1), labels.flatten())
        return loss


def plain(work: Work) -> Peer:
    model = Plain(work)
    return model, model


def joey(work: Work) -> Peer:
    """As its trainer calls the model."""
    build = importlib.import_module("joeynmt.model").build_model
    vocabulary = importlib.import_module("joeynmt.vocabulary").Vocabulary
    specials = ("unk", "pad", "bos", "eos")  # in the order that Joey NMT wants
    marks = {f"{name}_token": f"<{name}>" for name in specials}
    ids = {f"{name}_id": number for number, name in enumerate(specials)}
    names = SimpleNamespace(**marks, **ids, sep_token=None, lang_tags=[])
    vocabularies, settings = [], dict[str, Any](tied_softmax=True)
    for side, units in zip(("encoder", "decoder"), work["units"], strict=True):
        vocabularies.append(vocabulary([f"u{number}" for number in range(4, units)], names))
        settings[side] = {
            "type": "transformer",
            "num_layers": work[f"{side}_layers"],
            "num_heads": work["heads"],
            "embeddings": {"embedding_dim": work["width"], "scale": True},
            "hidden_size": work["width"],
            "ff_size": work["feed_forward"],
            "dropout": work["dropout"],
            "layer_norm": "pre",
        }
    model = build(settings, *vocabularies)
    model.loss_function = ("crossentropy", work["smoothing"])

    def loss(*batch: Tensor) -> Tensor:
        source, given, labels = (torch.where(ids < 4, (ids + 1) % 4, ids) for ids in batch)
        masks = {"src_mask": (source != 1)[:, None], "trg_mask": (labels != 1)[:, None]}
        sides = {"src": source, "src_length": (source != 1).sum(1), "trg_input": given, "trg": labels}
        summed: Tensor = model(return_type="loss", **sides, **masks)[0]
        return summed

    return model, loss


def main(system: str, folder: Path) -> None:
    work = json.loads((folder / "work.json").read_text(encoding="utf-8"))
    torch.set_num_threads(work["threads"])
    torch.manual_seed(1)
    model, loss = {"torch": plain, "joeynmt": joey}[system](work)
    adam = torch.optim.AdamW(model.train().parameters(), lr=1e-4, betas=(0.9, 0.98))
    with np.load(folder / "batches.npz") as arrays:
        tensors = [torch.from_numpy(array) for array in arrays.values()]
    for _ in range(2):
        began = time.perf_counter()
        for source, given, labels in zip(*[iter(tensors)] * 3, strict=True):
            adam.zero_grad()
            (loss(source, given, labels) / (labels != PAD).sum()).backward()
            if work["clip"]:
                nn.utils.clip_grad_norm_(model.parameters(), work["clip"])
            adam.step()
    print(json.dumps({"version": importlib.metadata.version(system), "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
