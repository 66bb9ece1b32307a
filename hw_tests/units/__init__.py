"""Tests of the units that execute the vector, array and store queues."""
