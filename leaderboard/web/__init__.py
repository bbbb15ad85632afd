"""The board on the web: a FastAPI application with an API and pages. It needs the extra ``web``."""
