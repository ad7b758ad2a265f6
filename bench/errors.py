"""The two kinds of mistake the harness tells apart; everything else is a bug and keeps its traceback."""


class UserError(Exception):
    """Something outside the program is not as it must be; shown as one sentence, exit code 2.

    The message says what was expected, what came, and what to do.
    """


class ContractError(Exception):
    """A plugin broke a rule of `bench.api`; the message names the plugin and the rule."""
