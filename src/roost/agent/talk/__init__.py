"""The agent's conversation with a control plane: join, register, and one connection's session."""
