"""Entry point of `python -m whilst`."""

from whilst.cli.main import main

if __name__ == "__main__":
    main()
