"""A process without network and without write access, in which submitted code runs."""

from leaderboard.sandbox.sandbox import ISOLATED, LIMITED, Limits, Sandbox, SandboxError, level_here, sandboxed

__all__ = ["ISOLATED", "LIMITED", "Limits", "Sandbox", "SandboxError", "level_here", "sandboxed"]
