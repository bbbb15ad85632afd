"""``alma surrogate`` and ``alma policy``: surrogates, and policies that are learned, tuned and judged."""
