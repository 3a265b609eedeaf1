"""What providers answer besides machines, named for what the caller does next.

    ProviderError
    +-- NoCapacity      ask for another zone, type or market; this one again later
    +-- QuotaReached    ask for less, or have the account's limit raised
    +-- Throttled       ask the same again, later and less often
    +-- Unreachable     nobody knows whether it was done: ask the same again, with the same token
    +-- BadCredentials  nothing works until somebody mends the account
    +-- MachineGone     it is not there any more, or never was
    +-- Refused         the request itself is wrong; asking again cannot help

A provider's own code and words are kept in `details`, cut short; its credentials never are.
"""

from roost.base.errors import (
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    RoostError,
    Unavailable,
)

#: Characters of a provider's own words that are kept.
MOST_WORDS = 500


class ProviderError(RoostError):
    """A provider did not do what was asked of it."""

    code = "provider_error"

    def __init__(
        self, provider: str, said: str, *, code: str = "", hint: str | None = None
    ) -> None:
        said = " ".join(said.split())[:MOST_WORDS] or "it gave no reason"
        named = f" ({code[:80]})" if code else ""
        super().__init__(
            f"{provider}: {said}{named}", hint=hint, provider=provider, provider_code=code[:80]
        )
        self.provider = provider
        self.provider_code = code[:80]


class NoCapacity(ProviderError, Unavailable):
    """The provider has no such machine left in this zone."""

    code = "provider_no_capacity"


class QuotaReached(ProviderError, QuotaExceeded):
    """The account may rent no more of these."""

    code = "provider_quota"


class Throttled(ProviderError, Unavailable):
    """The provider was asked too often."""

    code = "provider_throttled"

    def __init__(
        self, provider: str, said: str, *, code: str = "", after_s: float | None = None
    ) -> None:
        super().__init__(provider, said, code=code)
        self.after_s = after_s  # what the provider said to wait


class Unreachable(ProviderError, Unavailable):
    """No answer came, or one that says nothing; the request may have been carried out."""

    code = "provider_unreachable"


class BadCredentials(ProviderError, InvalidRequest):
    """The account's credentials are wrong, expired or lack a right."""

    code = "provider_credentials"


class MachineGone(ProviderError, NotFound):
    """The machine is not there."""

    code = "provider_machine_gone"


class Refused(ProviderError, InvalidRequest):
    """The provider does not accept the request as it is."""

    code = "provider_refused"
