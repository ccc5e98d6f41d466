"""`perfaudit mcp`: commands of perfaudit as tools for coding agents, over the Model Context Protocol.

Each tool is a command in a process of its own, which prints its JSON. `commands` knows what is typed, `server` the SDK.
"""
