"""Confidence methods, one module or package each; a file in this folder is registered automatically."""
