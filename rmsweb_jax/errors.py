"""Errors a user can cause, told in one line."""


class UserError(Exception):
    """Something the user can mend; the message says what is wrong, where, and what to do.

    Command lines print the message alone, without a traceback, and exit with `exit_code`.
    """

    exit_code = 2
