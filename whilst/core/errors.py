"""The exception for mistakes of the user: its message says what is wrong, where, and what to do."""


class UserError(Exception):
    """A mistake in the input or the settings. The commands print it as one line and exit with code 2."""
