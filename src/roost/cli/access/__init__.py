"""Who may ask what, and where: `projects`, `tokens`, `contexts`."""
