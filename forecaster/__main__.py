"""``python -m forecaster`` is the command ``forecaster``."""

from forecaster.cli import main

if __name__ == "__main__":
    main()
