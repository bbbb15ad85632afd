"""What each finding of the audit means, and what a reviewer looks at. The board and the docs show this guide.

``python -m leaderboard.board.finding_guide`` prints docs/reviewing.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guide:
    """A kind of finding, for reviewers.

    Attributes:
        code: of the finding.
        meaning: what the audit compared, and what it saw.
        honest: how an honest submission can come to it.
        look: what a reviewer looks at.
    """

    code: str
    meaning: str
    honest: str
    look: str


_ROWS = (
    (
        *("failed", "The run did not finish: the agent raised an error, exceeded a limit, or broke the protocol."),
        "An error of the agent, or of a library that the sandbox does not have.",
        "The text of the error. If it names the worker's machine (memory, disk), queue the submission again.",
    ),
    (
        *(
            "free-training",
            "The predictor changed, but fewer FLOPs were charged than one training step on one example.",
        ),
        "A predictor that is chosen among trained ones, or averaged from them, changes for few FLOPs.",
        "Where the values of the predictor come from, at the tick that the text names. Look for training outside "
        "of the meter: threads, other processes, NumPy, functions of one's own.",
    ),
    (
        *("known-before", "The predictor answers well after too few FLOPs to have learned it from the stream."),
        "A very small data set, or prior knowledge in the form of a hand-written rule.",
        "Constants, tables and compressed texts in the files. Train the same network on shuffled labels: it must fail.",
    ),
    (
        *("free-inference", "Many elements pass through operations without FLOPs, and few FLOPs are counted."),
        "A preprocessing of large inputs: resizing, sorting, histograms.",
        "The predictor's forward pass. Look for products that are written as sums, gathers or comparisons.",
    ),
    (
        *("batch-dependent", "Examples have other answers in another batch."),
        "Batch normalization in training mode, or dropout that is on.",
        "Whether the predictor is in evaluation mode. Else it learns from the test inputs.",
    ),
    (
        *("packed", "Many examples get another class if each parameter is rounded to 10 significant bits."),
        "Parameters that are places in a table, or that nearly cancel each other.",
        "How the forward pass reads its parameters. Shifts, remainders and floors unpack several numbers from one.",
    ),
    (
        *("uneven", "Examples cost more, or less, in another order."),
        "A mixture whose gate sends some classes through larger experts.",
        "On what the cost depends. A cost that depends on the order of the test set is no honest one.",
    ),
    (
        *("too-fast", "More FLOPs were reported than any core computes in the CPU seconds of the sandbox."),
        "A GPU, which the sandbox does not have.",
        "Charges by hand (`declared`) and costs of one's own (`own-costs`). They make Comp worse, so ask why.",
    ),
    (
        *("too-slow", "The sandbox used CPU seconds that neither the start nor the charged FLOPs explain."),
        "Slow Python code, loops over pixels, compilers, or a search that is charged correctly.",
        "What the agent computes outside of PyTorch, and its CPU time beside Comp. Run it with a profiler.",
    ),
    (
        *("paper-flops", "The paper's count, which only the contestant reports, is far from the executed FLOPs."),
        "A method whose training is unlike that of the paper, such as one without gradients.",
        "How the agent reports its training steps. The number is shown, and does not decide the order of the board.",
    ),
    (
        *(
            "buffers",
            "The program holds numbers outside of its parameters: buffers, constants, arguments of operations.",
        ),
        "Statistics of the inputs, or fixed features, such as a table of random projections.",
        "What the numbers are. Numbers that training changed belong to the parameters, so that Mem counts them.",
    ),
    (
        *("graph", "The graph of the program is large beside its parameters, and a graph can hold numbers."),
        "A tiny model with much code, or a decision tree that was unrolled.",
        "Repeated parts of the graph, literals and shapes. Ask the authors for the same model with parameters.",
    ),
    (
        *("own-costs", "The submission registered the cost, or the freedom from cost, of some operations."),
        "An operation of one's own, such as a kernel in C++, that the meter does not know.",
        "Each registered operation: its FLOPs by its definition. Compare Comp with the CPU time.",
    ),
    (
        *("claim", "The claimed ledger differs from the verified one by more than machines differ."),
        "Claims of another version of the code or of PyTorch.",
        "Which of the metrics differs. The board shows the verified numbers anyway.",
    ),
    (
        *("not-isolated", "The run had limits, but no isolation: the code could reach files and the network."),
        "A machine of the board without bubblewrap.",
        "Verify the submission again on a machine with isolation before you accept it.",
    ),
    (
        *("seeds", "The authors chose other seeds than the first ones from 0."),
        "Seeds of an earlier experiment.",
        "Whether the results with the seeds from 0 are as good.",
    ),
    (
        *("declared", "FLOPs were declared by hand, with a reason, because the meter could not count them."),
        "An optimizer or a library outside of PyTorch.",
        "Whether the declared number fits the reason. Compare Comp with the CPU time.",
    ),
    (
        *("no-cpu-time", "The machine does not count the CPU time of all processes of a sandbox."),
        "A worker that does not run as root.",
        "The findings `too-fast` and `too-slow` are weaker here. Verify a close case on a machine with control groups.",
    ),
)

FINDINGS = tuple(Guide(*row) for row in _ROWS)

HEAD = """\
# Reviewing results

A finding is a reason to look at a submission, with the numbers that the audit compared. It is not a proof and accuses
nobody: the thresholds come from the baselines and from the gallery of attacks. A maintainer decides on `/review`, or
with `alma-leaderboard review ID --accept --reason TEXT`. The submission's page shows the decision and the reason.

1. Read the finding, the CPU time beside Comp, and the error curve: progress without FLOPs shows there.
2. Download the files (they are the files that were verified: the digest is checked) and read `agent.py` first.
3. If the finding has an honest explanation in the table, accept the result and name the explanation. A result that
   lacks runs or has a fatal finding (`failed`) cannot be accepted.
4. If not, ask the authors (the manifest may have a contact), and decide after their answer.

If a run failed and the submission is not at fault, queue it again on `/review`, or with `alma-leaderboard retry ID`.
Its result stays until the new one replaces it. `alma-leaderboard verify ID --database URL` runs a submission on your
machine and stores nothing.

| finding | what it says | how an honest submission comes to it | what to look at |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the guide as the Markdown of docs/reviewing.md."""
    rows = (f"| `{one.code}` | {one.meaning} | {one.honest} | {one.look} |\n" for one in FINDINGS)
    return HEAD + "".join(rows) + TAIL


TAIL = """
A submission is *held* if its verification ended several times without a verdict, because workers were killed or their
machines could not run it (no memory, disk, data or isolation), or if its stored files are not those that were sent.
This says nothing about the submission. Look at the log of the workers, then queue it again.
"""

if __name__ == "__main__":
    print(page(), end="")
