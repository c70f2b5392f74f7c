"""``python -m klaud``: the same program as the ``klaud`` command."""

from klaud.cli import main

if __name__ == "__main__":
    main.main()
