"""One ordered, two-way stream of messages to a control plane."""
