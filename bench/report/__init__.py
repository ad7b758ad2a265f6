"""Turn result rows into tables, figures and an HTML page, without running a model.

The package can be called like a function: `from bench import report; report(results, out="report.html")`; see
`bench.cli.python.report`.
"""
