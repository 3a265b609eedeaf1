"""Images by digest: addresses that are allowed, pulls, and the store on disk."""
