"""Data sets, and the streams of mega-batches cut from them."""
