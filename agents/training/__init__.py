"""One stage, and the engines that compute it."""
