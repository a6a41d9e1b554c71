"""Pretrained checkpoints in the files of the Hugging Face hub: tokens, languages, greedy decoding as `generate`."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.commands import whilst
from tests.helpers.pretrained import ENGLISH, MAKERS, make_marian
from whilst.core.errors import UserError
from whilst.core.policy_spec import PolicySpec
from whilst.core.settings import Limits
from whilst.data.vocabulary import EOS
from whilst.decoding.offline import Rule, translate
from whilst.decoding.output import Output
from whilst.decoding.pretrained import CODES, Pretrained, find_code, open_pretrained

transformers = pytest.importorskip("transformers", reason="needs the extra hf")
CPU = torch.device("cpu")
LANGUAGES = "data.source=en", "data.target=de"
TOKENS = {"marian": ("", ""), "m2m100": ("en", "__de__"), "nllb": ("eng_Latn", "deu_Latn")}
LINES = [*ENGLISH, "A fox saw 15% of the Ωmega fire!", "cat cat cat"]


@pytest.fixture(scope="module", params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def folder(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MAKERS[kind](tmp_path_factory.mktemp("pretrained") / kind)


@pytest.fixture(scope="module")
def opened(folder: Path) -> Pretrained:
    return open_pretrained(f"hf:{folder}", LANGUAGES, CPU)


@pytest.fixture(scope="module")
def tokeniser(kind: str, folder: Path) -> Any:
    made = transformers.AutoTokenizer.from_pretrained(folder)
    if TOKENS[kind][0]:
        made.src_lang = TOKENS[kind][0]
    return made


def run(opened: Pretrained, policy: str, lines: list[str], batch: int = 3) -> list[Output]:
    sources = [opened.rules.known_source(line.split()) for line in lines]
    return translate(opened.model, Rule(PolicySpec.parse(policy)), sources, Limits(), batch)


def test_tokens_are_those_of_the_tokeniser(opened: Pretrained, tokeniser: Any) -> None:
    frame = opened.model.frame
    for line in LINES:
        ids = [opened.model.source[unit] for unit in opened.source.encode(line.split())]
        assert [*frame.before, *ids, *frame.after] == tokeniser(line).input_ids


def test_reading_all_first_is_what_generate_does(kind: str, opened: Pretrained, tokeniser: Any) -> None:
    table, target = opened.model.target.tolist(), TOKENS[kind][1]
    forced = [tokeniser.convert_tokens_to_ids(target)] if target else []
    # what stands for languages and padding is no word; a model that is trained well does not write it
    options: dict[str, Any] = {
        "suppress_tokens": sorted({*range(opened.model.model.config.vocab_size)} - {*table[EOS:]} - {*forced})
    }
    if forced:
        options["forced_bos_token_id"] = forced[0]
    texts = []
    for line, output in zip(LINES, run(opened, "full", LINES), strict=True):
        inputs = tokeniser(line, return_tensors="pt")
        limit = Limits().of(len(opened.source.encode(line.split())) + 1)
        longest = limit + len(opened.model.frame.start)
        [ids] = opened.model.model.generate(**inputs, num_beams=1, do_sample=False, max_length=longest, **options)
        ours = [*opened.model.frame.start, *(table[unit] for unit in output.units)]
        assert ours == [*ids.tolist()][: len(ours)]
        assert ids.tolist()[len(ours) :] in ([tokeniser.eos_token_id], [])
        text = " ".join(opened.target.decode(output.units))
        assert text == " ".join(tokeniser.decode(ids, skip_special_tokens=True).replace(target, "").split())
        texts.append(text)
    assert len(set(texts)) > 3
    assert "Der Fluss fließt an der alt" in texts[0]


@pytest.mark.parametrize("policy", ["wait-2", "local-agreement-2", "align-att-2"])
def test_batches_translate_as_one_by_one(opened: Pretrained, policy: str) -> None:
    together = run(opened, policy, LINES)
    for one, alone in zip(together, run(opened, policy, LINES, batch=1), strict=True):
        assert (one.units, one.reads) == (alone.units, alone.reads)
    assert any(one.reads[0] < one.reads[-1] for one in together)


def test_the_settings_of_a_checkpoint(kind: str, opened: Pretrained, folder: Path) -> None:
    assert (opened.recipe.data.source, opened.recipe.data.target) == ("en", "de")
    assert opened.recipe.checkpoint == str(folder)
    assert (opened.recipe.model.width, opened.recipe.model.encoder) == (32, "bidirectional")
    assert opened.checksum == open_pretrained(f"hf:{folder}", LANGUAGES, CPU).checksum
    if kind == "marian":
        languages = open_pretrained(f"hf:{folder}", [], CPU).recipe.data
        assert (languages.source, languages.target) == ("en", "de")
    else:
        with pytest.raises(UserError, match=r"knows \d+ languages; choose two, as in --source en --target de"):
            open_pretrained(f"hf:{folder}", [], CPU)
        with pytest.raises(UserError, match=r"--target tlh: unknown to .*, which knows "):
            open_pretrained(f"hf:{folder}", ["data.source=en", "data.target=tlh"], CPU)


def test_marian_with_several_target_languages(tmp_path: Path) -> None:
    folder = make_marian(tmp_path / "mul", ("deu", "fra"))
    opened = open_pretrained(f"hf:{folder}", LANGUAGES, CPU)
    tokeniser = transformers.AutoTokenizer.from_pretrained(folder)
    line = ENGLISH[0]
    frame, units = opened.model.frame, opened.source.encode(line.split())
    ours = [*frame.before, *(opened.model.source[unit] for unit in units), *frame.after]
    assert ours == tokeniser(f">>deu<< {line}").input_ids
    with pytest.raises(UserError, match=r"--target vi: unknown to .*, which knows deu, fra, … "):
        open_pretrained(f"hf:{folder}", ["data.target=vi"], CPU)


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("en", "eng_Latn"),
        ("eng", "eng_Latn"),
        ("zh", "zho_Hans"),
        ("zho_Hant", "zho_Hant"),
        ("ar", "arb_Arab"),
        ("vi", "vie_Latn"),
    ],
)
def test_codes_of_languages(language: str, code: str) -> None:
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

    assert find_code(FAIRSEQ_LANGUAGE_CODES, language, "source", "hf:nllb") == code


def test_every_code_is_one_of_nllb() -> None:
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

    known = {code.partition("_")[0] for code in FAIRSEQ_LANGUAGE_CODES}
    assert set(CODES.values()) - known == set()


def test_mistakes_are_errors_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="hf:nobody/nothing: neither a folder with a model nor") as error:
        open_pretrained("hf:nobody/nothing", [], CPU)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="neither a folder with a model nor"):
        open_pretrained(f"hf:{tmp_path}", [], CPU)
    transformers.T5Config(d_model=8, num_layers=1).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"is a t5 model; supported are Marian \(opus-mt\), M2M100 and NLLB models"):
        open_pretrained(f"hf:{tmp_path}", [], CPU)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UserError, match=r"transformers is not installed: pip install 'whilst\[hf\]'"):
        open_pretrained("hf:any/model", [], CPU)


def test_translate_prints_words(folder: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(ENGLISH) + "\n", encoding="utf-8")
    languages = "--set=data.source=en", "--set=data.target=de"
    done = whilst("translate", f"hf:{folder}", text, "--policy", "local-agreement-2", *languages)
    assert (done.code, len(done.out.splitlines())) == (0, len(ENGLISH)), done.err
    assert "Der" in done.out
    done = whilst("translate", f"hf:{folder}", text, "--policy", "agent-1", *languages)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "policy agent-1: a full-sentence model only supports full, wait-K" in done.err
