"""Many worlds side by side.

- `running` hands them to processes (`worker`) and keeps what fails;
- `shrinking` makes a failing history short.
"""
