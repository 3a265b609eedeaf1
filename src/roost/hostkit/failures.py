"""How work on a host fails: with a class that says when it makes sense to try again."""

from roost.model.states import FailureClass


class DriverError(Exception):
    """A driver could not do it. The failure class says when it makes sense to try again."""

    def __init__(self, failure: FailureClass, code: str, message: str) -> None:
        message = message.strip() or f"{code or failure}, and nothing says why"
        super().__init__(message)
        self.failure = failure
        self.code = code
        self.message = message
