// Synchronous memory with one read and one write port.
//
// Read data follows the address by one cycle and holds while read_en is low.  A word that is read in
// the cycle in which it is written comes out as it was.  Contents are undefined until written.
// Addresses are below DEPTH.  Define DISC_SRAM to bring a module of this name, ports and parameters,
// for example one of a process's macros.
`ifndef DISC_SRAM
module disc_sram #(
  parameter WIDTH = 1,
  parameter DEPTH = 1,
  parameter ADDRESS_BITS = 1
) (
  input  wire                    clk,
  input  wire [ADDRESS_BITS-1:0] read_address,
  input  wire                    read_en,
  output reg  [WIDTH-1:0]        read_data,
  input  wire [ADDRESS_BITS-1:0] write_address,
  input  wire [WIDTH-1:0]        write_data,
  input  wire                    write_en
);
  reg [WIDTH-1:0] words [0:DEPTH-1];
  always @(posedge clk) begin
    if (read_en) read_data <= words[read_address];
    if (write_en) words[write_address] <= write_data;
  end
endmodule
`endif
