"""A broker: replicated partitions, the APIs clients use, its life under a controller.

`partition` decides (pure), `replica_manager` acts on logs, `api_*` answer requests,
`fetchers` copy from leaders, `lifecycle` registers and beats, `broker` puts it together.
"""
