"""Byte formats: Kafka messages, record batches, codecs and side files, as pure functions."""
