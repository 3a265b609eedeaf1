"""VM groups: what they ask of their members, who belongs to them, and whether that holds."""
