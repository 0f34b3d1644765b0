"""A node's configuration, and arguments that several tests of commands begin with."""

NODE = """\
node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.voters=1@localhost:9093
log.dirs={data}
"""
DEAD = ("--admin", "127.0.0.1:1", "--timeout", "0.5")
FORMAT = ("storage", "format", "--config", "node.properties")
DYNAMIC = ("storage", "format", "--config", "dynamic.properties")
ID = "MkU3OEVBNTcwNTJENDM2Qg"
