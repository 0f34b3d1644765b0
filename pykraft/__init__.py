"""One pykraft process: configuration, assembly, logs, metrics, command line, local cluster."""
