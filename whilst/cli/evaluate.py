"""Commands: translate, evaluate, score, convert, archive, report."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from whilst.cli.options import (
    Device,
    Glossary,
    Lag,
    Lags,
    Policies,
    PolicyFile,
    RunOrCheckpoint,
    Set,
    Source,
    Target,
    as_folder,
    folder_of,
    lag_policy,
    register_policies,
    with_glossary,
    with_lag,
    with_languages,
)


def translate(
    run: RunOrCheckpoint,
    file: Annotated[Path | None, typer.Argument(help="Text, one sentence per line. Default or -: stdin.")] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="A policy as in `whilst evaluate`, such as wait-K or agent-L.")
    ] = "wait-3",
    lag: Lag = None,
    policy_file: PolicyFile = [],  # noqa: B006
    show: Annotated[bool, typer.Option("--show", help="Show every READ and WRITE.")] = False,
    source: Source = "",
    target: Target = "",
    glossary: Glossary = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Translate sentences, one per line.

    \b
    Examples:
        whilst translate runs/toy data/toy-20000-1/test.src --policy wait-5
        head -n 3 data/toy-20000-1/test.src | whilst translate runs/toy --show
        echo "My father gave me an old radio." | whilst translate en-vi --policy agent-1
        whilst translate en-vi talk.txt --lag 3
        whilst translate hf:Helsinki-NLP/opus-mt-en-de talk.txt --policy local-agreement-2
        whilst translate hf:facebook/nllb-200-distilled-600M talk.txt --source en --target de --policy align-att-4
        whilst translate runs/toy data/toy-20000-1/test.src --policy-file mine.py --policy comma-3
    """
    from whilst.core.policy_spec import PolicySpec
    from whilst.engine.runtime import is_export
    from whilst.evaluation.evaluate import translate_text
    from whilst.live.evaluate_export import translate_exported
    from whilst.live.loading import ModelOptions

    register_policies(policy_file)
    policy = with_lag(policy, lag, "wait-3")
    folder = folder_of(run)
    overrides = with_languages(with_glossary(set_, glossary), folder, source, target)
    if is_export(folder):
        translate_exported(ModelOptions(str(folder), policy, overrides=tuple(overrides), device=device), file, show)
    else:
        translate_text(folder, file, PolicySpec.parse(policy), show, overrides, device)


def evaluate(
    run: RunOrCheckpoint = None,  # type: ignore[assignment]  # or --model
    policies: Policies = [],  # noqa: B006
    lags: Lags = [],  # noqa: B006
    policy_file: PolicyFile = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the traces. Default: RUN/evaluations.", callback=as_folder),
    ] = None,
    text: Annotated[bool, typer.Option("--text/--no-text", help="Keep source and reference in the traces.")] = True,
    model: Annotated[
        str, typer.Option("--model", help="Instead of RUN: a model as in `whilst live`.", metavar="MODEL")
    ] = "",
    source: Annotated[
        str,
        typer.Option(
            "--source",
            help="Source language of an hf: model, such as en. With --reference: file of source text; -: stdin.",
        ),
    ] = "",
    target: Target = "",
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            help="File of references: evaluate on the text of --source, translated as by `whilst live`.",
        ),
    ] = None,
    precision: Annotated[
        Literal["fp32", "int8"] | None, typer.Option("--precision", help="Precision of an export. Default: int8.")
    ] = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Measure quality and latency on the test set.

    The test set is translated under each policy. An exported run is evaluated one sentence at a time, as
    `whilst live` translates.

    \b
    Examples:
        whilst evaluate runs/toy
        whilst evaluate runs/toy --policy wait-1 --policy wait-3 --policy full
        whilst evaluate runs/toy/search --policy agent-1 --policy oracle-1
        whilst evaluate en-vi --lag 3 --lag 5 --set data.dataset=data/live.en-vi
        whilst evaluate runs/iwslt15.en-vi --no-text --out results/iwslt15.en-vi --set evaluate.split=valid
        whilst evaluate engines/en-vi --policy agent-3 --precision int8
        whilst evaluate runs/iwslt15.en-vi.full --policy local-agreement-2 --policy align-att-4 --policy wait-3
        whilst evaluate hf:Helsinki-NLP/opus-mt-en-vi --source en --target vi --set data.dataset=data/iwslt15.en-vi
        whilst evaluate --model en-vi --source news.en --reference news.vi --policy low --policy wait-3
        whilst evaluate runs/toy --policy-file mine.py --policy comma-2 --policy comma-3
    """
    import whilst
    from whilst.core.errors import UserError
    from whilst.evaluation.report import print_table
    from whilst.live.evaluate_export import evaluate_text
    from whilst.live.loading import ModelOptions

    register_policies(policy_file)
    if bool(model) == (run is not None):
        raise UserError("name one model to evaluate: RUN or --model MODEL")
    run = folder_of(run or Path(model))
    policies = [*policies, *map(lag_policy, lags)]
    if reference is not None:
        if not source:
            raise UserError("--reference: needs the source text too; give --source FILE")
        options = ModelOptions(str(run), precision=precision or "int8", overrides=tuple(set_), device=device)
        evaluate_text(options, policies, Path(source), reference, out)
        return
    settings = with_languages(set_, run, source, target)
    print_table(
        whilst.evaluate(run, policies, out=out, text=text, precision=precision, device=device, settings=settings)
    )


def score(
    trace: Annotated[
        Path, typer.Argument(help="A trace, an archive of traces, or another log; -: stdin.", metavar="TRACE")
    ],
    source: Annotated[Path | None, typer.Option("--source", help="Source text, for traces without text.")] = None,
    reference: Annotated[
        Path | None, typer.Option("--reference", help="Reference text, for traces without text.")
    ] = None,
    segments: Annotated[
        Path | None,
        typer.Option(
            "--segments",
            help="For a trace of whole talks, their sentences: source text with one sentence per line, or times,"
            " as a YAML or JSON list of wav, offset, duration.",
            metavar="FILE",
        ),
    ] = None,
    align: Annotated[
        Literal["soft", "mwer"],
        typer.Option("--align", help="How to divide the output of a talk: SoftSegmenter or mwerSegmenter."),
    ] = "soft",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Also write the divided output, in the format of OmniSTEval's instances."),
    ] = None,
    comet: Annotated[
        str,
        typer.Option("--comet", help="Also compute COMET of this model, with comet-score.", metavar="MODEL"),
    ] = "",
) -> None:
    """Score a trace again, without the model.

    The scores are compared with the recorded ones. Logs of SimulEval, OmniSTEval, simulstream and `whilst live
    --json` are scored too.

    \b
    Examples:
        whilst score runs/toy/evaluations/test.wait-3.jsonl.xz
        whilst score results/iwslt15.en-vi/traces.tar.xz
        whilst score results/iwslt15.en-vi/traces.tar.xz/multi-path/test.wait-3.jsonl --source s.en --reference r.vi
        whilst score simuleval/instances.log
        whilst live --json < talk.en > talk.jsonl && whilst score talk.jsonl --segments talk.en --reference talk.vi
        whilst score instances.log --segments talks.yaml --reference talks.vi --align mwer
    """
    from whilst.data.text import read_lines
    from whilst.evaluation.passages import is_timed
    from whilst.evaluation.record import TRACES, rescore, rescore_archive
    from whilst.evaluation.report import print_archive, print_comet, print_scores, print_timed

    if trace.name == TRACES:
        print_archive(rescore_archive(trace, source, reference))
    elif TRACES in trace.parts:
        for _, rescored in rescore_archive(trace, source, reference):
            print_scores(rescored)
    elif segments is not None or is_timed(trace):
        passages = print_timed(trace, segments, reference, align, out)
        if comet:
            sources = read_lines(source) if source else []
            print_comet(comet, sources, [p.prediction for p in passages], [p.reference for p in passages])
    else:
        rescored = rescore(trace, source, reference)
        print_scores(rescored)
        if comet:
            sentences = rescored.sentences
            texts = (
                [sentence.source for sentence in sentences],
                [sentence.prediction for sentence in sentences],
                [sentence.reference for sentence in sentences],
            )
            print_comet(comet, *texts)


def convert(
    trace: Annotated[Path, typer.Argument(help="A trace, or a log that `whilst score` reads.", metavar="TRACE")],
    out: Annotated[Path, typer.Argument(help="File to write.", metavar="OUT")],
    to: Annotated[
        Literal["simuleval", "simulstream"],
        typer.Option("--to", help="simuleval (OmniSTEval reads it too) or simulstream."),
    ] = "simuleval",
) -> None:
    """Write a trace as the log of another toolkit.

    For simulstream, whose delays are in milliseconds, a source word of text counts 300 ms.

    \b
    Examples:
        whilst convert runs/toy/evaluations/test.wait-3.jsonl.xz simuleval/instances.log
        whilst convert talk.jsonl talk.log --to simulstream
    """
    from whilst.core.console import notes
    from whilst.evaluation.passages import convert

    notes.print(f"{out}: {convert(trace, out, to)} lines", soft_wrap=True)


def archive(
    folder: Annotated[Path, typer.Argument(help="Folder of evaluations.", metavar="FOLDER")],
) -> None:
    """Move the evaluations under a folder into two files.

    The files are FOLDER/records.jsonl and FOLDER/traces.tar.xz. `whilst report`, `score` and `paper` read them.
    Another call adds new evaluations.

    \b
    Examples:
        whilst evaluate runs/iwslt15.en-vi --no-text --out results/iwslt15.en-vi/multi-path
        whilst archive results/iwslt15.en-vi
    """
    from whilst.core.console import notes
    from whilst.evaluation.record import pack

    notes.print(f"{folder}: {pack(folder)} evaluations in records.jsonl and traces.tar.xz")


def report(
    evaluations: Annotated[list[Path], typer.Argument(help="Records, or folders of records.", metavar="PATH")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the report.", callback=as_folder)] = Path("report"),
    pair: Annotated[
        str | None, typer.Option("--pair", help="Language pair, such as iwslt15.en-vi, if there are several.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Text that was evaluated: test or valid.")] = "test",
) -> None:
    """Draw the quality/latency curve of evaluations.

    Also writes report.md: a table, and comparisons with each other and with the paper at equal latency.

    \b
    Examples:
        whilst report runs/toy/evaluations --out runs/toy/report
        whilst report results/iwslt15.en-vi --out results/iwslt15.en-vi
        whilst report runs/toy/evaluations --split valid --out runs/toy/report.valid
    """
    from whilst.core.console import notes
    from whilst.evaluation.record import read_records
    from whilst.evaluation.report import print_table, report, select

    records = read_records(evaluations)
    written = report(records, out, pair, split)
    print_table(select(records, pair, split))
    notes.print(f"{out}: {', '.join(path.name for path in written)}")
