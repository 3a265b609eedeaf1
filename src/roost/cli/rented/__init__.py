"""Programs on rented machines: `jobs`, `pools` of machines, `accounts`."""
