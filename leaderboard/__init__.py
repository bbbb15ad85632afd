"""The leaderboard: submissions, their checks, their verification and the standings.

This package imports ``agents`` and ``alma_env``, and neither imports it. The database and the web server need the extra
``web``; writing and checking a submission does not.
"""

from alma_env import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(
    __name__,
    {
        "details": "board.details",
        "review": "board.results",
        "standings": "board.standings",
        "verify": "verification.verify",
    },
)
