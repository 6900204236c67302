"""The ``tornasole`` command, as ``python -m tornasole``."""

from tornasole.views.cli import main

if __name__ == "__main__":
    main()
