"""Any whilst model as an agent of SimulEval (docs/simuleval.md).

    simuleval --agent-class whilst.live.simuleval_agent.Whilst --model RUN …

SimulEval adds one source word before every call; all words that the policy allows then are one WRITE action.
No other module imports this one, as simuleval is installed separately.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

from simuleval.agents import TextToTextAgent
from simuleval.agents.actions import Action, ReadAction, WriteAction
from simuleval.utils import entrypoint

from whilst.core.errors import UserError, note
from whilst.data.sentences import never_ends
from whilst.live.loading import ENGINES, Model, ModelOptions, open_model
from whilst.live.session import Session, Word

MAX_UNITS = 1000  # of a sentence: the sentences of SimulEval are not split


@entrypoint
class Whilst(TextToTextAgent):  # type: ignore[misc]  # simuleval has no types
    def __init__(self, args: argparse.Namespace) -> None:
        try:
            self.model = open_agent(args)
        except UserError as error:
            note(str(error))
            sys.exit(2)
        self.backend = self.model.backend()
        super().__init__(args)

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        # Not --latency: argparse would take it for an abbreviation of --latency-metrics.
        parser.add_argument("--model", required=True, help="A run folder, an export, or a model's name.")
        parser.add_argument("--policy", default="medium", help="low, medium, high, or a policy such as wait-3.")
        parser.add_argument("--policy-file", action="append", default=[], help="A Python file with policies.")
        parser.add_argument("--engine", default="auto", help=f"{', '.join(ENGINES)}: as in `whilst live`.")
        parser.add_argument(
            "--precision", default="fp32", help="Of the CPU engine: fp32 (same words as PyTorch) or int8."
        )
        parser.add_argument(
            "--set", nargs="*", default=[], metavar="A.B=C", help="Settings, such as data.target=de for hf:NAME."
        )
        parser.add_argument("--clean", action="store_true", help="The text is from a dataset: already cleaned.")

    def reset(self) -> None:
        super().reset()
        self.session = Session(self.backend, self.model.text)
        self.read_count = 0  # source words

    def policy(self) -> Action:
        words = self.states.source[self.read_count :]
        self.read_count += len(words)
        events = [event for word in words for event in self.session.feed(word)]
        if self.states.source_finished:
            events += self.session.finish()
        written = " ".join(event.text for event in events if isinstance(event, Word))
        if written or self.states.source_finished:
            return WriteAction(written, finished=self.states.source_finished)
        return ReadAction()


def open_agent(args: argparse.Namespace) -> Model:
    if args.policy_file:
        from whilst.policy.registry import register_files

        register_files(map(Path, args.policy_file))
    options = ModelOptions(args.model, args.policy, args.engine, args.precision, tuple(args.set), args.device)
    model = open_model(options)
    text = dataclasses.replace(model.text, max_units=MAX_UNITS, ends_sentence=never_ends)
    if args.clean:
        text = dataclasses.replace(text, clean=str, truecase=None)
    return dataclasses.replace(model, text=text)
