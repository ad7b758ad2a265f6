"""Mutation testing: single-line changes of the source, and whether the tests that cover the line notice."""
