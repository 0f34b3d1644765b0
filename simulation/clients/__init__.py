"""Clients of the simulated cluster, on the product's own `net.client`."""
