"""Checkpoints with random weights and real tokenisers, in the files in which the Hugging Face hub has them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

ENGLISH = (
    "The river runs past the old mill.",
    "A young fox sleeps near the river.",
    "We saw the mill burn last night.",
    "Nobody knew how the fire had begun.",
    "The miller lost his flour and his cat.",
    "Tomorrow the children will look for the cat.",
)
GERMAN = (
    "Der Fluss fließt an der alten Mühle vorbei.",
    "Ein junger Fuchs schläft in der Nähe des Flusses.",
    "Wir sahen die Mühle gestern Nacht brennen.",
    "Niemand wusste, wie das Feuer begonnen hatte.",
    "Der Müller verlor sein Mehl und seine Katze.",
    "Morgen werden die Kinder nach der Katze suchen.",
)
SIZES: dict[str, Any] = {
    "d_model": 32,
    "dropout": 0.0,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 300,
}


def make_marian(folder: Path, languages: Sequence[str] = ()) -> Path:
    """As opus-mt-en-de; with several target languages as opus-mt-en-mul."""
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    pieces = [*learn(ENGLISH, folder / "source.spm"), *learn(GERMAN, folder / "target.spm")]
    codes = [f">>{language}<<" for language in languages]
    vocabulary = dict.fromkeys(["</s>", "<unk>", *pieces, *codes, "<pad>"])
    write(folder / "vocab.json", {piece: id for id, piece in enumerate(vocabulary)})
    write(folder / "tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})
    pad = len(vocabulary) - 1
    special = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0}
    save(MarianMTModel, MarianConfig(vocab_size=len(vocabulary), **special, **SIZES), folder)
    return folder


def make_m2m100(folder: Path) -> Path:
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    folder.mkdir(parents=True)
    pieces = learn([*ENGLISH, *GERMAN], folder / "sentencepiece.bpe.model", "bpe")
    vocabulary = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *pieces])
    write(folder / "vocab.json", {piece: id for id, piece in enumerate(vocabulary)})
    write(folder / "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer"})
    units = len(vocabulary) + 100 + 8  # languages, and what the real one has made up
    save(M2M100ForConditionalGeneration, M2M100Config(vocab_size=units, **SIZES), folder)
    return folder


def make_nllb(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=150, special_tokens=special, show_progress=False)
    learner.train_from_iterator([*ENGLISH, *GERMAN], trainer)
    model = json.loads(learner.to_str())["model"]
    tokeniser = NllbTokenizer(vocab=model["vocab"], merges=list(map(tuple, model["merges"])))
    tokeniser.save_pretrained(folder)
    save(M2M100ForConditionalGeneration, M2M100Config(vocab_size=len(tokeniser), **SIZES), folder)
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {"marian": make_marian, "m2m100": make_m2m100, "nllb": make_nllb}


def learn(lines: Sequence[str], path: Path, kind: str = "unigram") -> list[str]:
    """Write a SentencePiece model; returns its pieces."""
    with path.open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            vocab_size=90,
            model_type=kind,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    processor = SentencePieceProcessor(model_file=str(path))
    return [processor.id_to_piece(id) for id in range(processor.get_piece_size())]


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def save(kind: Any, config: Any, folder: Path) -> None:
    """Train a little, so that the output depends on the source and ends."""
    from transformers import AutoTokenizer

    torch.manual_seed(1)
    config.save_pretrained(folder)  # says which tokeniser it has
    model, tokeniser = kind(config), AutoTokenizer.from_pretrained(folder)
    if config.model_type != "marian":
        tokeniser.src_lang, tokeniser.tgt_lang = ("en", "de") if "100" in folder.name else ("eng_Latn", "deu_Latn")
    batch = tokeniser(list(ENGLISH), text_target=list(GERMAN), return_tensors="pt", padding=True)
    batch["labels"][batch["labels"] == tokeniser.pad_token_id] = -100
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(60):
        model(**batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
