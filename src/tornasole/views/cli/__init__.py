"""The command line: ``tornasole ls | show | check | watch | rules | …``.

app        the commands and their options
reports    from a trial to plain values
output     from plain values to a terminal, a pipe or JSON
findings   from what rules say to lines for people
export     from a trial to files of other formats
"""

from __future__ import annotations


def main() -> None:
    """Runs the command; errors that a user can mend are one line on stderr, and exit code 2."""
    import sys

    from tornasole.errors import SMDebugError
    from tornasole.views.cli.app import app
    from tornasole.views.cli.output import hush, show_note

    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        hush()  # whoever read our output has had enough
        sys.exit(1)
    except (SMDebugError, OSError) as error:
        show_note(str(error) or type(error).__name__)
        sys.exit(2)
