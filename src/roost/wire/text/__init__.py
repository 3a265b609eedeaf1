"""Text that people write: fleet files, host tables, requests, strict YAML, and foreign formats."""
