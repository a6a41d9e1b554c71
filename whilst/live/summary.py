"""Counts and average lagging of a live session."""

from whilst.evaluation.metrics import average_lagging
from whilst.live.session import Event, Word


class Summary:
    """Average lagging is in source words, with the length of the translation; its mean is over sentences."""

    def __init__(self) -> None:
        self.words = self.sentences = 0
        self._delays: list[int] = []  # of the current sentence
        self.lag_count = 0  # sentences that have a lag
        self._lag_sum = 0.0

    def add(self, event: Event) -> float | None:
        """The average lagging of the sentence that the event ends, unless it has no words."""
        if isinstance(event, Word):
            self.words += 1
            self._delays.append(event.delay)
            return None
        self.sentences += 1
        delays, self._delays = self._delays, []
        if not delays or not event.length:
            return None
        lag = average_lagging(delays, event.length, len(delays))
        self._lag_sum += lag
        self.lag_count += 1
        return lag

    @property
    def mean_lag(self) -> float | None:
        return self._lag_sum / self.lag_count if self.lag_count else None
