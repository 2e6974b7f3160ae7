"""Run the command ``forecaster`` against a stand-in for Yahoo, as a process of its own:

python -m tests.ingest.standin_cli PORT TODAY ARGUMENTS...
"""

import signal
import sys
from urllib.parse import urlsplit

import pandas as pd

import forecaster.ingest.sources.yahoo as package
from forecaster.cli import main


class Redirected(package.Yahoo):
    def __init__(self, **options):
        port, today = sys.argv[1:3]

        def rewrite(url: str) -> str:
            parts = urlsplit(url)
            return f"http://127.0.0.1:{port}{parts.path}?{parts.query}"

        super().__init__(
            **options, rewrite=rewrite, now=lambda: pd.Timestamp(today, tz="UTC"), cool_down=0.1
        )


if __name__ == "__main__":
    # A suite that runs in the background ignores Ctrl-C, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    package.Yahoo = Redirected
    main(sys.argv[3:])
