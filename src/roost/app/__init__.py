"""The composition root: settings read once, objects built, services started and stopped."""
