"""Analyses of what a run has read: further cells and numbers, without reading the model again."""
