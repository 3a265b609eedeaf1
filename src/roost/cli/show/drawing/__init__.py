"""Pictures: of characters for a terminal, as SVG text, and as PNG files with matplotlib."""
