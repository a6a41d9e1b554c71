"""Any whilst model as an agent of SimulEval.

    simuleval --agent-class whilst.live.simuleval_agent.Whilst --model RUN …

SimulEval pushes one source word before every call, so all that can be written then goes into one action.
Nothing else imports this module: simuleval is a guest (docs/simuleval.md says how to install it).
"""

import argparse
import dataclasses
import sys

from simuleval.agents import TextToTextAgent
from simuleval.agents.actions import Action, ReadAction, WriteAction
from simuleval.utils import entrypoint

from whilst.core.errors import UserError
from whilst.live.loading import ENGINES, Opened, Wanted, open_model
from whilst.live.session import Session, Word

LONGEST = 1000  # units: a sentence of SimulEval's is one, however long


@entrypoint
class Whilst(TextToTextAgent):  # type: ignore[misc]  # a guest without types
    def __init__(self, args: argparse.Namespace) -> None:
        try:
            self.model = opened(args)
        except UserError as error:
            print(f"whilst: {error}", file=sys.stderr)
            sys.exit(2)
        self.steps = self.model.steps()
        super().__init__(args)

    @staticmethod
    def add_args(parser: argparse.ArgumentParser) -> None:
        # No --latency: SimulEval would take it for the beginning of --latency-metrics.
        parser.add_argument("--model", required=True, help="A run folder, an exported one, or a model's name.")
        parser.add_argument("--policy", default="medium", help="low, medium, high, or as in `whilst evaluate`.")
        parser.add_argument("--engine", default="auto", help=f"{', '.join(ENGINES)}: as in `whilst live`.")
        parser.add_argument("--precision", default="fp32", help="Of the engine: fp32 (PyTorch's words) or int8.")
        parser.add_argument("--clean", action="store_true", help="The text is a dataset's, and cleaned already.")

    def reset(self) -> None:
        super().reset()
        self.session = Session(self.steps, self.model.text)  # the steps begin anew with its first word
        self.taken = 0  # source words

    def policy(self) -> Action:
        words = self.states.source[self.taken :]
        self.taken += len(words)
        events = [event for word in words for event in self.session.feed(word)]
        if self.states.source_finished:
            events += self.session.finish()
        written = " ".join(event.text for event in events if isinstance(event, Word))
        if written or self.states.source_finished:
            return WriteAction(written, finished=self.states.source_finished)
        return ReadAction()


def opened(args: argparse.Namespace) -> Opened:
    wanted = Wanted(
        args.model, args.policy, args.engine, args.precision, device=args.device, longest=LONGEST, by_lines=True
    )
    model = open_model(wanted, lambda line: print(f"whilst: {line}", file=sys.stderr))
    text = dataclasses.replace(model.text, clean=str, casing=None) if args.clean else model.text
    return dataclasses.replace(model, text=text)
