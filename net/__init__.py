"""Kafka connections, both ends: listeners, clients, and the tables of handlers they serve."""
