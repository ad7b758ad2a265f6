"""Entry point of the command `bench`, also `python -m bench.cli`."""

import signal


def main() -> None:
    """Import the libraries and run the command line."""
    # nothing can be lost while libraries load, so Ctrl-C ends the process without a traceback
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from bench.cli import app

    app.main()


if __name__ == "__main__":
    main()
