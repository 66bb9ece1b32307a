"""The DPU array and what lies beside it: banks of columns, their constants, rows, dot products."""
