"""What moves between DRAM and the core: the port, readers and writers of rows, the load unit.

All blocks speak to memory through the ports of `hw.memory.bus`.  Whoever reads keeps room for what
it has asked for, so read data never waits and requesters cannot block each other.
"""
