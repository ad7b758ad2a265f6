"""Analyses of stored signals: transfer matrix, label-budget study, those of single methods."""
