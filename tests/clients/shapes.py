"""The clients' types against the description of the API, and by the tools that read types."""
