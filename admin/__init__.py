"""The gRPC door: the Admin service of every controller, and the Python client of it."""
