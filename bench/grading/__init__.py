"""Grading of answers: option letters, open texts, judges."""
