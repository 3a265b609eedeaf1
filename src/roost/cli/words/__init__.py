"""What a user types: options, requests, files and contexts turned into questions."""
