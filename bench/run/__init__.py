"""The sentence: resolve, plan, read, fit, predict, score, write. Start at `pipeline.py`.

The room can be called: `from bench import run; run(methods="ptrue", model="tiny")`, see `bench.cli.python.run`.
"""
