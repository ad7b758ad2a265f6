"""Analyse stored signals without forward passes: transfer matrix, label budgets, and analyses of single methods."""
