"""What the active controller decides, and the shell that lets it act.

`core.Controller` is pure: events in, effects out. One `api_*.py` per Kafka API checks a request
against the image and answers with records; only `MetadataImage.apply` changes durable state.
"""
