"""Analyses of stored signals, without forward passes: transfer matrix, label-budget study, those of single methods."""
