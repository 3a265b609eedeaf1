"""What a user sees: tables, sentences, documents and errors."""
