"""Cluster metadata: KIP-631 records, the image they replay into, features, configs."""
