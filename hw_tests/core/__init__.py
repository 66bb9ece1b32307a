"""The complete core on simulated DRAM: programs in, images and counters out."""
