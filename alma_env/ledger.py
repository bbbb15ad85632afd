"""The ledger: one row per tick, and the three measures of a learner over the whole stream.

    CER  = Σ_t error of m(·; θ_t)        Mem = Σ_t |θ_t|        Comp = Σ_t FLOPs spent at tick t

ALMA paper, section 3 (metrics); t runs from 0, before any data, to B. The ledger is plain data: it has no tensor and no
reference to the environment, it round-trips through JSON to the last bit, and every total is the sum of its rows.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NoReturn

from alma_env.errors import MissingPackageError, how_to_install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas

_NUMBERS = ("tick", "error", "parameters", "buffers", "inference_flops", "paper_flops", "seconds")  # columns of a row


@dataclass(frozen=True)
class Row:
    """The record of one tick.

    Attributes:
        tick: 0 (before any data) to B.
        error: error of the deployed predictor on the hidden test set: the fraction of wrong answers for classes,
            the perplexity per token for text.
        parameters: scalars in the deployed predictor's ``parameters()``, tied ones once; 0 for the uniform guess.
        buffers: scalars in its buffers (BatchNorm statistics, normalisation constants): reported, not part of Mem.
        inference_flops: floating-point operations per test example, mean over the test set; 1 multiply-add = 2.
        flops: floating-point operations executed since the previous tick, by phase (``training``, ``validation``, …).
        paper_flops: training cost by the paper's rule of thumb: 6 per forward multiply-add in training, plus growth.
        declared: reasons of the charges that the learner declared because the meter could not count them.
        digest: content digest of the deployed predictor; empty for the uniform guess.
        refused: a budget was broken at this tick or before, so the previously deployed predictor stayed.
        seconds: wall-clock time since the previous tick, including evaluation. Only this column may differ between two
            runs of the same configuration.
        registered: operations that ran since the previous tick and whose cost, or freedom from cost, the learner
            registered. Files have this column only where it is not empty.
    """

    tick: int
    error: float
    parameters: int
    buffers: int
    inference_flops: float
    flops: dict[str, int]
    paper_flops: int
    declared: tuple[str, ...]
    digest: str
    refused: bool
    seconds: float
    registered: tuple[str, ...] = ()

    @property
    def comp(self) -> int:
        """FLOPs spent at this tick, all phases together."""
        return sum(self.flops.values())

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Row:
        """Read a row from the dictionary of ``dataclasses.asdict``, also from JSON.

        Raises:
            ValueError: a column is missing or unknown, or a number is not finite.
        """
        names = {f.name for f in fields(cls)}
        if set(values) | {"registered"} != names:
            wrong = sorted((set(values) | {"registered"}) ^ names)
            raise ValueError(
                f"columns {wrong}: a ledger row has exactly the columns {sorted(names)}; "
                "read it with the version of alma-env that wrote it"
            )
        for name in _NUMBERS:
            value = values[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(
                    f"{name}={reprlib.repr(value)}: must be a finite number; no environment writes another"
                )
        texts = {name: tuple(values.get(name, ())) for name in ("declared", "registered")}
        return cls(**{**values, **texts, "flops": dict(values["flops"])})


@dataclass(frozen=True)
class Score:
    """A learner's result over a stream, or over the ticks answered so far.

    Attributes:
        ticks: number of ticks answered so far, tick 0 not counted.
        cer: cumulative error rate Σ_{t=0..B} e_t, a sum of fractions (for text: of perplexities).
        cer_from_1: cer without tick 0, as in the published version of the paper; smaller by exactly e_0.
        mean_error: cer / (ticks + 1).
        mean_error_from_1: cer_from_1 / ticks, None before tick 1. For text this is the paper's average perplexity,
            whose first point is after the first mega-batch. With tick 0, the size of the vocabulary would dominate the
            mean. The untrained answers of a learner that waits are included.
        final_error: error at the last tick.
        mem: Σ_t |θ_t|, parameters.
        comp: Σ_t FLOPs, everything that was executed.
        comp_by_phase: comp by phase.
        paper_flops: Σ_t of the paper's rule of thumb.
        declared: whether the learner declared any part of comp, which was then not counted.
        registered: whether comp has operations whose cost, or freedom from cost, the learner registered.
        seconds: wall-clock time.
        truncated: whether a budget ended the episode early; the previously deployed predictor answered the last ticks.
        regret: Σ_t (e_t − e*_t), the error in excess of the oracle's; None without an oracle.
    """

    ticks: int
    cer: float
    cer_from_1: float
    mean_error: float
    mean_error_from_1: float | None
    final_error: float
    mem: int
    comp: int
    comp_by_phase: dict[str, int]
    paper_flops: int
    declared: bool
    seconds: float
    truncated: bool
    regret: float | None = None
    registered: bool = False


@dataclass
class Ledger:
    """The rows of an episode, tick 0 first."""

    rows: list[Row] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, tick: int) -> Row:
        return self.rows[tick]

    @property
    def comp(self) -> int:
        """FLOPs spent so far."""
        return sum(row.comp for row in self.rows)

    def append(self, row: Row) -> None:
        """Append the row of the next tick.

        Raises:
            ValueError: the row is of another tick.
        """
        if row.tick != len(self.rows):
            raise ValueError(
                f"row of tick {row.tick}: rows must be in the order of ticks, and the next tick is {len(self.rows)}"
            )
        self.rows.append(row)

    def score(self, oracle: Ledger | None = None) -> Score:
        """Return CER, Mem and Comp of the rows so far.

        Args:
            oracle: ledger of an oracle on the same stream, for regret. An oracle had all possible knowledge at every
                tick.

        Raises:
            ValueError: the ledger has no row yet, or the oracle's ledger has another number of ticks.
        """
        if oracle is not None and len(oracle) != len(self):
            raise ValueError(
                f"oracle with {len(oracle) - 1} ticks, ledger with {len(self) - 1} ticks: must be equal, because "
                "regret compares tick by tick; pass the ledger of an oracle on the same stream"
            )
        columns = ("error", "parameters", "flops", "paper_flops", "declared", "refused", "seconds", "registered")
        score = score_of(**{name: [getattr(row, name) for row in self.rows] for name in columns})
        if oracle is None:
            return score
        regret = sum(row.error - best.error for row, best in zip(self.rows, oracle.rows, strict=True))
        return replace(score, regret=regret)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as flat dictionaries for pandas, Arrow or CSV: one column per phase, ``flops_<phase>``."""
        phases = sorted({phase for row in self.rows for phase in row.flops})
        records = []
        for row in self.rows:
            record = asdict(row)
            flops = record.pop("flops")
            record["declared"] = "; ".join(row.declared)
            record["registered"] = "; ".join(row.registered)
            record["comp"] = row.comp
            record.update({f"flops_{phase}": flops.get(phase, 0) for phase in phases})
            records.append(record)
        return records

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a DataFrame.

        Raises:
            MissingPackageError: the extra ``pandas`` is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingPackageError(f"to_pandas() needs the package pandas; {how_to_install('pandas')}") from error

        return pandas.DataFrame.from_records(self.records())

    def to_json(self) -> str:
        """Return one JSON object per line, tick 0 first: the format of the ledger files of runs."""
        return "".join(row_to_json(row) + "\n" for row in self.rows)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read the text that ``to_json`` returned.

        Raises:
            ValueError: a line is not a row, a number is not finite, or the rows are not in order.
        """
        ledger = cls()
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                row = Row.from_dict(json.loads(line, parse_constant=_refuse))
            except (json.JSONDecodeError, TypeError) as error:
                raise ValueError(
                    f"line {number}: not a ledger row ({error}); each line must be one JSON object"
                ) from error
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
            ledger.append(row)
        return ledger


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and Infinity: they are no numbers of JSON, and no environment writes them."""
    raise TypeError(f"{constant} is no finite number")


def score_of(
    *,
    error: Sequence[float],
    parameters: Sequence[int],
    flops: Sequence[Mapping[str, int]],
    paper_flops: Sequence[int],
    declared: Sequence[Sequence[str]],
    refused: Sequence[bool],
    seconds: Sequence[float],
    registered: Sequence[Sequence[str]] = (),
) -> Score:
    """Return the score of a ledger from its columns: sequences with one value per tick, tick 0 first.

    Raises:
        ValueError: there is no tick yet.
    """
    if not error:
        raise ValueError("0 rows: a score needs at least tick 0; call env.reset() first")
    # In the order of ticks, so that equal rows give equal sums to the last bit.
    cer, cer_from_1, ticks = sum(error), sum(error[1:]), len(error) - 1
    phases: Counter[str] = Counter()
    for tick in flops:
        for phase, number in tick.items():  # many times as fast as Counter.update
            phases[phase] += number
    return Score(
        ticks=ticks,
        cer=cer,
        cer_from_1=cer_from_1,
        mean_error=cer / len(error),
        mean_error_from_1=cer_from_1 / ticks if ticks else None,
        final_error=error[-1],
        mem=sum(parameters),
        comp=sum(phases.values()),
        comp_by_phase=dict(phases),
        paper_flops=sum(paper_flops),
        declared=any(declared),
        seconds=sum(seconds),
        truncated=any(refused),
        registered=any(registered),
    )


def row_to_json(row: Row) -> str:
    """Return one line of a ledger file, without the line end; floats keep every bit."""
    values = {name: value for name, value in vars(row).items() if name != "registered" or value}
    return json.dumps(values, sort_keys=True, allow_nan=False)  # `asdict` would copy each value first
