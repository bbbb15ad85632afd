"""The board on the web: FastAPI, an API for programs and pages for people. It needs the extra ``web``."""
