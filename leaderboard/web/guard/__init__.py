"""Checks of every request: rate limits, security headers, the caller's identity, error responses."""
