"""Types of the door; its names are imported when they are first asked for."""

from bench.api import UserError as UserError
from bench.cli.python import audit as audit
from bench.cli.python import load_results as load_results
from bench.cli.python import report as report
from bench.cli.python import run as run
from bench.report.notebook import Results as Results
from bench.run.scorers.scorer import load_head as load_head

__all__ = ["Results", "UserError", "audit", "load_head", "load_results", "report", "run"]
