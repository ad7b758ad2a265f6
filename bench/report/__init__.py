"""Results -> tables, figures and page; a pure function of result rows that never runs a model.

The room can be called: `from bench import report; report(results, out="report.html")`, see `bench.cli.python.report`.
"""
