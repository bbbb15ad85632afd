"""Deploy programs before the real judge and the real evaluator, without a sandbox: a run takes a part of a second."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from alma_env import Ledger
from leaderboard.program.export import export
from leaderboard.sandbox.channel import Channel, ChannelError, Message, pipe_pair
from leaderboard.sandbox.sandbox import ISOLATED
from leaderboard.verification import audit
from leaderboard.verification.evaluator import serve
from leaderboard.verification.judge import Judge
from leaderboard.verification.one_run import SandboxedRun
from leaderboard.verification.reported import RunFailedError

PLENTY = 10**9  # FLOPs per tick that explain every training of these tests


def exported(module, env):
    """Return the bytes of a module as a program."""
    program, _ = export(module, env.data.train_x[:2])
    return program.graph_bytes(), program.tensor_bytes()


def deploy(env, programs, *, flops=PLENTY, cpu=1.0, evaluate=serve):
    """Deploy one program at each tick from the first, and return the run and the reasons of refusals.

    The contestant reports ``flops`` at each of these ticks, and its sandbox uses ``cpu`` seconds per tick.
    """
    refused: list[str] = []

    def contestant(channel, begun):
        for tick in range(env.ticks + 1):
            if 1 <= tick <= len(programs):
                channel.send(Message("answer", {}, programs[tick - 1]))
                reply = channel.receive()
                if reply.kind == "refused":
                    refused.append(reply.fields["reason"])
            spent = {"training": flops} if tick else {}
            entered = {"tick": tick, "flops": spent, "paper_flops": sum(spent.values()), "declared": []}
            channel.send(Message("enter", entered))

    return play(env, contestant, cpu=cpu, evaluate=evaluate), refused


def play(env, contestant, *, cpu=1.0, evaluate=serve):
    """Let a function of its channel and the first message be the contestant, one of its channel the evaluator."""
    (mine, theirs), (judging, answering) = pipe_pair(), pipe_pair()

    def begin(channel):
        contestant(channel, channel.receive())

    def party(act, descriptors):
        channel = Channel(*descriptors)
        try:
            act(channel)
        except ChannelError:
            pass
        finally:
            channel.close()

    channels = Channel(*mine), Channel(*judging)
    seconds = iter(range(1000))
    judge = Judge(env, 0, *channels, time.monotonic() + 300, cpu_seconds=lambda: cpu * next(seconds))
    failure = None
    with ThreadPoolExecutor(2) as threads:
        parties = [threads.submit(party, *pair) for pair in ((begin, theirs), (evaluate, answering))]
        try:
            judge.run()
        except RunFailedError as error:
            failure = str(error)
        finally:
            for channel in channels:
                channel.close()
    for one in parties:
        one.result()  # raises the error of a party
    ledger: Ledger = judge.ledger
    guess = env.data.task.guess
    return SandboxedRun(ledger, tuple(judge.evidence), failure, "", ISOLATED, None, guess, input_size=64)


def findings(env, *programs, **options):
    """Return the codes of the findings about these programs, or ``refused`` with the reason."""
    run, refused = deploy(env, programs, **options)
    assert run.failure is None
    return {f"refused: {reason}" for reason in refused} or {finding.code for finding in audit.run_findings(run)}
