"""Simulations that show whether tests err as seldom as they say, and whether intervals cover: `make simulate`."""
