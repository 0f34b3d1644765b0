"""One pykraft process: node configuration, assembly, logs, metrics, the command line, the local cluster."""
