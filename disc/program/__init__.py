"""Commands that hardware, golden executor and cycle model share.

A program is a list of commands for four in-order queues.  `docs/program.md` is its reference; its
tables are made from the declarations in this package.
"""

from disc.program.array import Mlp, Project, ProjectEpilogue
from disc.program.attend import Attend, AttendEpilogue
from disc.program.encoding import COMMANDS, WORD_BITS, decode, encode, from_bytes, layout, to_bytes
from disc.program.fields import Command, Queue
from disc.program.fuse import Function, FuseCommand, MaskMode
from disc.program.load import LoadColumns, LoadConstants, LoadList, LoadMasks, LoadRows, LoadTable
from disc.program.program import Buffer, BufferKind, Program
from disc.program.store import Change, Fence, Select, StoreMasks
from disc.program.text import format_command, format_program, parse_program
from disc.program.vector import Forecast, Norm, Record

__all__ = [
    "COMMANDS",
    "WORD_BITS",
    "Attend",
    "AttendEpilogue",
    "Buffer",
    "BufferKind",
    "Change",
    "Command",
    "Fence",
    "Forecast",
    "Function",
    "FuseCommand",
    "LoadColumns",
    "LoadConstants",
    "LoadList",
    "LoadMasks",
    "LoadRows",
    "LoadTable",
    "MaskMode",
    "Mlp",
    "Norm",
    "Program",
    "Project",
    "ProjectEpilogue",
    "Queue",
    "Record",
    "Select",
    "StoreMasks",
    "decode",
    "encode",
    "format_command",
    "format_program",
    "from_bytes",
    "layout",
    "parse_program",
    "to_bytes",
]
