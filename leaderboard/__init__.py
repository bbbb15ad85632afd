"""Where results are compared: submissions, their checks, the queue that verifies them, the standings.

Of the three packages this is the uppermost: it imports ``agents`` and ``alma_env``, and neither imports it. What needs
a database needs the extra ``web``; a submission is written and checked without it.
"""
