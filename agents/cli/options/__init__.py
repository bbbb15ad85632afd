"""What the command line accepts; it loads neither PyTorch nor the learners."""
