"""Answers on a part of a stream, and what is kept so that the next answer takes less work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

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
    """Scores predictors; it keeps the normalised inputs, and the last kept ensemble with its stream.

    Args:
        part: what is answered: the hidden test set, or the validation parts of all mega-batches.
    """

    def __init__(self, part: Literal["test", "validation"] = "test") -> None:
        self._part = part
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
        """Return the answer of a predictor, and the record for `keep` if it is an ensemble.

        Args:
            predictor: the copy that answers, see `as_it_answers`.
            mark: its fingerprint.
            stream: the stream of which it answers a part.
            steady_flops: FLOPs per example by kind of predictor, if all batches had the same cost.
            task: what is scored.
            batch_size: test examples per forward pass.

        Raises:
            PredictorError: the predictor cannot be scored.
        """
        before, before_stream = self._kept or (None, None)
        # All streams of a data set of images have one test set; other parts depend on the seed.
        shared = self._part == "test" and isinstance(stream, Stream)
        return score(
            predictor,
            mark,
            *(stream.test if self._part == "test" else stream.validation),
            task=task,
            batch_size=batch_size,
            steady_flops=None if mark.kind is None else steady_flops.get(mark.kind),
            before=before if shared or stream == before_stream else None,
            inputs=self._inputs,
        )

    def error(self, predictor: nn.Module, stream: Stream | TextStream, *, task: Task, batch_size: int) -> float:
        """Return the error of a predictor, and keep it if it is an ensemble; arguments and errors as for `score`."""
        found, scored = self.score(*as_it_answers(predictor), stream, {}, task=task, batch_size=batch_size)
        if scored is not None:
            self.keep(scored, stream)
        return found.error

    def keep(self, scored: ScoredEnsemble, stream: Stream | TextStream) -> None:
        """Keep an ensemble: the next one, if it grows from this one, runs only its new members."""
        self._kept = scored, stream


def as_it_answers(predictor: nn.Module) -> tuple[nn.Module, Fingerprint]:
    """Return the copy that will answer, and its fingerprint; of an ensemble, only new members will be copied."""
    if not (isinstance(predictor, Ensemble) and predictor.is_plain):
        predictor = freeze(predictor)
    return predictor, fingerprint(predictor)
