"""Where results are compared and verified. Not part of this release: nothing here yet but the name."""
