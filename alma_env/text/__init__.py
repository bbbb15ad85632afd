"""Streams of text: documents, tokens, sequences, and the cache of their files."""
