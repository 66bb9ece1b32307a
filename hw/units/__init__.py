"""The units that execute the commands of the vector, array and store queues."""
