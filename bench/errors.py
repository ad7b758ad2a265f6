"""The kinds of mistake the harness tells apart; everything else is a bug and keeps its traceback."""


class UserError(Exception):
    """Something outside the program is not as it must be; shown as one sentence, exit code 2.

    The message says what was expected, what came, and what to do.
    """


class UntrainableError(UserError):
    """Raised by `fit`: these answers can't teach the method anything, e.g. all are wrong; its cell is skipped."""


class ContractError(Exception):
    """A plugin broke a rule of `bench.api`; the message names the plugin and the rule."""
