"""Hand-written protocol parts of the hot paths, on private parts of uvicorn and websockets."""
