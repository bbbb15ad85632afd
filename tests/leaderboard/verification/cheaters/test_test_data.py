"""What a cheater sees of the test set, of later data and of its own errors."""

from __future__ import annotations

from leaderboard.sandbox.channel import Message

from ...hand_written_programs import program
from .gallery import attack, codes, printed
from .judged import play


@attack("searches for the test set in the environment", "it is not there")
@attack("searches for arrays of images among all objects", "only the mega-batches that arrived")
@attack("loads the digits from scikit-learn", "the files are hidden")
@attack("loads the digits from the package of the benchmark", "the files are hidden")
@attack("connects to the network", "there is none")
@attack("reads a file of the host", "it is not there")
@attack("writes to the interpreter, the packages or the submission", "read-only")
@attack("looks at the processes and the environment variables of the host", "none are visible")
@attack("requests a later mega-batch or the validation error", "an error")
@attack("trains on import", "no data exists on import")
def test_the_sandbox_has_no_test_set_no_later_data_no_network_and_no_writable_files(run, env, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("outside")
    sandboxed_run = run(f"""
        import gc, os, socket, subprocess, sys
        import numpy as np

        def attempt(name, what):
            try:
                print(f"{{name}}: {{what()}}")
            except BaseException as error:
                print(f"{{name}}: {{type(error).__name__}}")

        def connect():
            return socket.create_connection(("1.1.1.1", 53), timeout=2)

        def digits():
            from sklearn.datasets import load_digits
            return load_digits().data.shape

        def packaged():
            import alma_env
            return alma_env.load("Digits").digest

        def images():
            seen = [o for o in gc.get_objects() if isinstance(o, np.ndarray) and o.size and o.any()]
            return max((len(o) for o in seen if o.ndim == 4), default=0)

        def written():
            places = ["/program", "/submission", "/usr", "/", os.path.dirname(np.__file__)]
            return [place for place in places if os.access(place, os.W_OK)]

        class Peeping(Learner):
            def before(self, observation):
                if self.env.tick == 0:
                    attempt("test", lambda: (len(self.env.data.test_y), int(self.env.data.test_x.any())))
                    attempt("train", lambda: int(self.env.data.train_x.any()))
                    attempt("images", images)
                    attempt("digits", digits)
                    attempt("packaged", packaged)
                    attempt("network", connect)
                    attempt("outside", lambda: open({str(secret)!r}).read())
                    attempt("written", written)
                    attempt("processes", lambda: len([p for p in os.listdir("/proc") if p.isdigit()]) < 10)
                    attempt("environment", lambda: sorted(k for k in os.environ if "ALMA" in k))
                    attempt("future", lambda: self.env.megabatch(2))
                    attempt("validation", lambda: self.env.validation_error(self.predictor))
                    sys.stdout.flush()

        attempt("on import", packaged)

        def make_agent(env):
            return Peeping(env)
        """)
    assert sandboxed_run.failure is None
    assert printed(sandboxed_run, "test") == "(1, 0)"
    assert printed(sandboxed_run, "train") == "0"
    # At most the training part of a mega-batch.
    assert int(printed(sandboxed_run, "images")) <= env.examples_per_tick
    assert printed(sandboxed_run, "digits") in ("FileNotFoundError", "OSError")
    assert printed(sandboxed_run, "on import") == "FileNotFoundError"
    assert printed(sandboxed_run, "packaged") == "FileNotFoundError"
    assert printed(sandboxed_run, "network") in ("OSError", "PermissionError", "ConnectionRefusedError")
    assert printed(sandboxed_run, "outside") == "FileNotFoundError"
    assert printed(sandboxed_run, "written") == "[]"
    assert printed(sandboxed_run, "processes") == "True"
    assert printed(sandboxed_run, "environment") == "[]"
    assert printed(sandboxed_run, "future") == "ValueError"
    assert printed(sandboxed_run, "validation") == "RuntimeError"


@attack("requests a later mega-batch from the judge itself", "the run ends; finding `failed`")
def test_the_judge_refuses_a_request_for_a_later_mega_batch(env):
    def asking(channel, begun):
        channel.send(Message("enter", {"tick": 0, "flops": {}, "paper_flops": 0, "declared": []}))
        channel.send(Message("megabatch", {"tick": 3}))
        channel.receive()

    run = play(env, asking)
    assert "mega-batch 3 was requested when only 1 had arrived" in run.failure
    assert len(run.ledger) == 1
    assert codes(run) == {"failed"}


@attack("has several predictors scored at one tick", "the run ends; finding `failed`")
def test_a_second_answer_at_one_tick_ends_the_run(env):
    def trying(channel, begun):
        for _ in range(3):
            channel.send(Message("answer", {}, program()))
            channel.receive()

    run = play(env, trying)
    assert "a second predictor was sent after the first was scored" in run.failure
    assert codes(run) == {"failed"}
