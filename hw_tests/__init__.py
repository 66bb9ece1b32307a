"""cocotb testbenches under Verilator, with their drivers, monitors and scoreboards."""
