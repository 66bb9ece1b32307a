"""What every part of DiSC shares: configuration, number formats, hashes and the command line."""

__version__ = "0.1.0"
