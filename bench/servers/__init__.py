"""Servers that answer over HTTP: addresses, the client that judges and models share, dialects of model servers."""
