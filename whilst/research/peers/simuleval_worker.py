"""Times the agent loop of SimulEval around the agent of whilst, and a live session of whilst on the same sentences.

    python simuleval_worker.py FOLDER    # with SimulEval and whilst on the path

FOLDER has work.json: the model, its policy, the sentences. Prints "version", "simuleval" and "whilst" (seconds),
and "same", the share of sentences with the same words.
"""

import importlib.metadata
import json
import sys
import time
from pathlib import Path

from simuleval.evaluator import build_evaluator
from simuleval.utils.agent import build_system_args

from whilst.live.session import Session, Word


def main(folder: Path) -> None:
    work = json.loads((folder / "work.json").read_text(encoding="utf-8"))
    text, output = folder / "text.txt", folder / "simuleval"
    text.write_text("".join(f"{line}\n" for line in work["lines"]), encoding="utf-8")
    sys.argv[1:] = ["--agent-class", "whilst.live.simuleval_agent.Whilst", "--model", work["model"]]
    sys.argv += ["--policy", work["policy"], "--precision", "int8", "--source", str(text), "--target", str(text)]
    sys.argv += ["--output", str(output), "--no-scoring", "--no-progress-bar"]
    agent, arguments = build_system_args()
    evaluator, session = build_evaluator(arguments), Session(agent.backend, agent.model.text)

    def translate(line: str) -> str:
        events = [event for word in line.split() for event in session.feed(word)] + session.finish()
        return " ".join(event.text for event in events if isinstance(event, Word))

    for _ in range(2):  # the first time to warm up
        began = time.perf_counter()
        own = [translate(line) for line in work["lines"]]
        between = time.perf_counter()
    evaluator(agent)
    seconds = {"whilst": between - began, "simuleval": time.perf_counter() - between}
    logs = (output / "instances.log").read_text(encoding="utf-8").splitlines()
    same = sum(json.loads(log)["prediction"] == line for log, line in zip(logs, own, strict=True)) / len(own)
    print(json.dumps({"version": importlib.metadata.version("simuleval"), **seconds, "same": same}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
