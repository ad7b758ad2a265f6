"""The command `bench`, also `python -m bench.cli`."""

import signal


def main() -> None:
    """Load the libraries and do what the command line says."""
    # while they load nothing can be lost, so Ctrl-C simply ends it, without a traceback
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bench.cli import app

    app.main()


if __name__ == "__main__":
    main()
