"""The partition log: segments, indexes, producer state, leader epochs, recovery, retention.

One directory a partition, laid out exactly as Kafka lays it out. `storage.log.Log` is the log
of one partition, `storage.log_dir.LogDirectory` the directory that holds many. Nothing here
runs in the background: what is due is done when the owner calls.
"""
