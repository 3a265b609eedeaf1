"""The conversation with agents: connections, desired lists out, reports in."""
