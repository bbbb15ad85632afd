"""Answers on the test set of a stream, and what is kept so that the next answer takes less work."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from alma_env.data.stream import Stream
from alma_env.scoring.ensemble import Ensemble
from alma_env.scoring.evaluation import Answer, freeze
from alma_env.scoring.fingerprint import Fingerprint, Kind, fingerprint
from alma_env.scoring.incremental import ScoredEnsemble, score
from alma_env.scoring.normalised import NormalisedInputs
from alma_env.scoring.tasks import Task
from alma_env.text.stream import TextStream


class Answers:
    """Scores predictors; it keeps the normalised test inputs, and the last deployed ensemble with its stream."""

    def __init__(self) -> None:
        self._kept: tuple[ScoredEnsemble, Stream | TextStream] | None = None
        self._inputs = NormalisedInputs()

    def score(
        self,
        predictor: nn.Module,
        mark: Fingerprint,
        stream: Stream | TextStream,
        steady_flops: Mapping[Kind, float],
        *,
        task: Task,
        batch_size: int,
    ) -> tuple[Answer, ScoredEnsemble | None]:
        """Return the answer of a predictor on the test set, and the record for `keep` if it is an ensemble.

        Args:
            predictor: the copy that answers, see `as_it_answers`.
            mark: its fingerprint.
            stream: the stream whose test set it answers.
            steady_flops: FLOPs per example by kind of predictor, if all batches had the same cost.
            task: what is scored.
            batch_size: test examples per forward pass.

        Raises:
            PredictorError: the predictor cannot be scored.
        """
        before, before_stream = self._kept or (None, None)
        # The evaluation set of text depends on the seed.
        same_test = not isinstance(stream, TextStream) or stream == before_stream
        return score(
            predictor,
            mark,
            *stream.test,
            task=task,
            batch_size=batch_size,
            steady_flops=None if mark.kind is None else steady_flops.get(mark.kind),
            before=before if same_test else None,
            inputs=self._inputs,
        )

    def keep(self, scored: ScoredEnsemble, stream: Stream | TextStream) -> None:
        """Keep a deployed ensemble: the next one, if it grows from this one, runs only its new members."""
        self._kept = scored, stream


def as_it_answers(predictor: nn.Module) -> tuple[nn.Module, Fingerprint]:
    """Return the copy that will answer, and its fingerprint; of an ensemble, only new members will be copied."""
    if not (isinstance(predictor, Ensemble) and predictor.is_plain):
        predictor = freeze(predictor)
    return predictor, fingerprint(predictor)
