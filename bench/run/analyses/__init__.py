"""Analyses of stored signals: transfer matrix, label budgets, and analyses of single methods; no forward passes."""
