"""The schema's history (`migrate`), and what is written for the release before (`older`)."""
