"""The board on the web: an API for programs and pages for people. Needs the extra ``web``."""
