"""What state a host is in, whoever asks: health, admin state, inventory, pressure."""
