"""gRPC's own Python code for the Admin service; made by scripts/generate-stubs."""
