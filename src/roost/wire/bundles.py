"""What a policy says as JSON text of the ledger. Fields that are not known here are passed over."""

from functools import lru_cache

import msgspec

from roost.model.policies import Bundle

_decode = msgspec.json.Decoder(Bundle).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def bundle_text(bundle: Bundle) -> str:
    """Write what a policy says; equal bundles have equal texts."""
    return _encode(bundle).decode()


@lru_cache(maxsize=1024)
def read_bundle(text: str) -> Bundle:
    """Read what a policy says; raises `msgspec.MsgspecError` where it cannot be read."""
    return _decode(text)
