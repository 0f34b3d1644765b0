"""The world as a node sees it: clock, chance, ids, disk and blocking work.

Everything a node does outside of its own memory and its event loop goes through an
`Env` (world.env). `world.real` is the operating system, `world.memory` an in-memory twin
whose disk can lose power.
"""
