"""Run methods on a model: resolve, plan, read, fit, predict, score, write. Begin to read at `pipeline.py`.

The package can be called: `from bench import run; run(methods="ptrue", model="tiny")`, see `bench.cli.python.run`.
"""
