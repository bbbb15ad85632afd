"""Where a program may keep numbers that are not parameters."""

from __future__ import annotations

from .gallery import attack, codes


@attack("computes logits with a trained array in a buffer", "finding `buffers`")
def test_weights_in_buffers_are_flagged(run):
    sandboxed_run = run("""
        class Hidden(Small):
            def __init__(self):
                super().__init__()
                self.register_buffer("weights", torch.randn(640, 10) * 1e-3)

            def forward(self, x):
                return super().forward(x) + (x.flatten(1).repeat(1, 10) / 16) @ self.weights

        class Hiding(Learner):
            def __init__(self, env):
                super().__init__(env)
                self.predictor = Hidden()

        def make_agent(env):
            return Hiding(env)
        """)
    assert sandboxed_run.failure is None
    assert codes(sandboxed_run) == {"buffers"}
