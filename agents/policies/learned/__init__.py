"""What learned policies see, decide and are stored in; the learned schedule that comes with the package."""
