"""The vector unit: everything that is not a matrix product.

Streaming blocks, each equal to a function of the integer golden core to the bit.  All of them keep
the same rules:

- A row of D elements is ceil(D / lanes) words, element 0 in lane 0 of word 0.  D is a quasi-static
  input: it changes only while `busy` is low.  Padding of the last word is ignored at inputs and is
  0 at outputs.
- Arithmetic is a rigid pipeline.  It moves while its output register is free or being emptied, and
  stops as a whole otherwise; gaps at the inputs pass through it as empty stages.  So throughput is
  one word a cycle whatever comes in, latency is constant, and nothing inside can overflow.
- `load` ports fill memories of constants; they never stall.
"""
