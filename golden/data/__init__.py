"""Real images for the tiny trained model: the digits 0..9 in several hundred free font faces."""

from golden.data.glyphs import GlyphDataError, glyph_split, load_glyphs

__all__ = ["GlyphDataError", "glyph_split", "load_glyphs"]
