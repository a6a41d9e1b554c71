"""Audio to source words, through a recogniser."""

from collections.abc import Iterator

from whilst.live.input import DEFAULT_AGREEMENT, Commitment, Hypothesis, Reader
from whilst.speech.recogniser import Recogniser


class SpeechReader(Reader):
    """Commits the words of hypotheses once they are stable; a pause of the speaker ends the sentence."""

    def __init__(self, recogniser: Recogniser, agreement: int = DEFAULT_AGREEMENT) -> None:
        self._recogniser = recogniser
        self._commitment = Commitment(agreement)
        self._finished = False

    def read(self, chunk: bytes) -> Iterator[str]:
        for hypothesis in self._recogniser.feed(chunk) if chunk else self._finish():
            yield from self._commitment.add(hypothesis)

    def flush(self) -> list[str]:
        words = [word for hypothesis in self._finish() for word in self._commitment.add(hypothesis)]
        return words + self._commitment.end_utterance()

    def _finish(self) -> list[Hypothesis]:
        finished, self._finished = self._finished, True
        return [] if finished else self._recogniser.finish()
