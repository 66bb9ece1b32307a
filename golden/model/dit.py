"""Diffusion transformer with adaLN-zero, parameter names and structure of facebookresearch/DiT.

Peebles and Xie, "Scalable Diffusion Models with Transformers", arXiv 2212.09748.  Where the
original and `diffusers.DiTTransformer2DModel` differ (epsilon of `norm2`, frequencies of the
timestep), this follows diffusers, so that the same weights give the same output there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from golden.attention import AttentionCore, DenseAttention


@dataclass(frozen=True)
class DiTConfig:
    """Sizes of the model.  Lengths in pixels where the name says so."""

    size_px: int = 32
    patch: int = 2
    channels: int = 1
    dim: int = 128
    depth: int = 6
    heads: int = 4
    mlp_ratio: int = 4
    classes: int = 10
    base_grid: int = 16
    """Patches along an edge at which positions count 0, 1, 2…; other grids span the same range."""

    def __post_init__(self) -> None:
        for field in ("size_px", "patch", "channels", "dim", "depth", "heads", "classes"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: {getattr(self, field)} is below 1")
        if self.size_px % self.patch:
            raise ValueError(f"size_px: {self.size_px} is not a multiple of patch = {self.patch}")
        if self.dim % self.heads or self.dim % 4:
            raise ValueError(f"dim: {self.dim} is not a multiple of heads = {self.heads} and of 4")

    @property
    def grid(self) -> int:
        """Patches along an edge."""
        return self.size_px // self.patch

    @property
    def tokens(self) -> int:
        """Patches of an image, in row-major order."""
        return self.grid**2

    @property
    def head_dim(self) -> int:
        """Channels of one head."""
        return self.dim // self.heads

    @property
    def null_class(self) -> int:
        """Label that stands for "no class", for classifier-free guidance."""
        return self.classes


def sincos_positions(config: DiTConfig) -> Tensor:
    """Fixed position embedding float32 [1, N, dim]; first half of the channels: column."""
    quarter = config.dim // 4
    omega = 10000.0 ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    step = config.base_grid / config.grid
    position = torch.arange(config.grid, dtype=torch.float64) * step
    row, column = torch.meshgrid(position, position, indexing="ij")
    angles = [axis.reshape(-1, 1) * omega for axis in (column, row)]
    parts = [f(angle) for angle in angles for f in (torch.sin, torch.cos)]
    return torch.cat(parts, dim=1).float()[None]


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Return x (1 + scale) + shift, for x [B, R, dim], shift and scale [B, dim]."""
    return x * (1 + scale[:, None]) + shift[:, None]


class PatchEmbed(nn.Module):
    """Image [B, C, px, px] to tokens [B, N, dim]."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.proj = nn.Conv2d(
            config.channels, config.dim, kernel_size=config.patch, stride=config.patch
        )

    def forward(self, x: Tensor) -> Tensor:
        """Embed each patch."""
        return self.proj(x).flatten(2).transpose(1, 2)


class TimestepEmbedder(nn.Module):
    """Timestep float [B], 0 (clean) to 1000 (noise), to [B, dim]."""

    FREQUENCIES = 128

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * self.FREQUENCIES, dim), nn.SiLU(), nn.Linear(dim, dim)
        )

    def forward(self, t: Tensor) -> Tensor:
        """Embed each timestep."""
        # Divisor 127, not 128: diffusers' downscale_freq_shift = 1.
        exponent = torch.arange(self.FREQUENCIES, device=t.device) / (self.FREQUENCIES - 1)
        angle = t[:, None].float() * torch.exp(-math.log(10000.0) * exponent)
        return self.mlp(torch.cat([angle.cos(), angle.sin()], dim=1))


class LabelEmbedder(nn.Module):
    """Class int64 [B] to [B, dim]; the last row of the table is the null class."""

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.embedding_table = nn.Embedding(classes + 1, dim)

    def forward(self, y: Tensor) -> Tensor:
        """Embed each class."""
        return self.embedding_table(y)


class Attention(nn.Module):
    """Projections around an exchangeable `core`, see `golden.attention`."""

    def __init__(self, config: DiTConfig, layer: int) -> None:
        super().__init__()
        self.heads, self.layer = config.heads, layer
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.proj = nn.Linear(config.dim, config.dim)
        self.core: AttentionCore = DenseAttention()

    def split_heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v of tokens x [B, R, dim], each [B, H, R, d]."""
        b, r, _ = x.shape
        q, k, v = self.qkv(x).view(b, r, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return q, k, v

    def merge_heads(self, out: Tensor) -> Tensor:
        """Output projection of [B, H, R, d], giving [B, R, dim]."""
        return self.proj(out.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        """Attend among tokens [B, N, dim], giving [B, N, dim]."""
        return self.merge_heads(self.core(*self.split_heads(x), self.layer))


class Mlp(nn.Module):
    """fc1, GELU (tanh form), fc2."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.dim, config.mlp_ratio * config.dim)
        self.fc2 = nn.Linear(config.mlp_ratio * config.dim, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [B, R, dim] to [B, R, dim]."""
        return self.fc2(nn.functional.gelu(self.fc1(x), approximate="tanh"))


class DiTBlock(nn.Module):
    """x += gate · attention(modulated LN(x)); x += gate · MLP(modulated LN(x))."""

    def __init__(self, config: DiTConfig, layer: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.dim, elementwise_affine=False, eps=1e-6)
        self.attn = Attention(config, layer)
        self.norm2 = nn.LayerNorm(config.dim, elementwise_affine=False, eps=1e-5)
        self.mlp = Mlp(config)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(config.dim, 6 * config.dim))

    def modulation(self, c: Tensor) -> tuple[Tensor, ...]:
        """Shift, scale, gate of attention, then of the MLP, each [B, dim]."""
        return self.adaLN_modulation(c).chunk(6, dim=1)

    def attention_input(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """Normalised and modulated tokens that the attention branch reads, [B, R, dim]."""
        return modulate(self.norm1(x), shift, scale)

    def mlp_branch(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """MLP branch before its gate, [B, R, dim]; every token by itself."""
        return self.mlp(modulate(self.norm2(x), shift, scale))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        """Tokens [B, N, dim] under conditioning [B, dim] to [B, N, dim]."""
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(c)
        x = x + gate_a[:, None] * self.attn(self.attention_input(x, shift_a, scale_a))
        return x + gate_m[:, None] * self.mlp_branch(x, shift_m, scale_m)


class FinalLayer(nn.Module):
    """Tokens [B, R, dim] to patches [B, R, patch² · channels]."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.norm_final = nn.LayerNorm(config.dim, elementwise_affine=False, eps=1e-6)
        self.linear = nn.Linear(config.dim, config.patch**2 * config.channels)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(config.dim, 2 * config.dim))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        """Predict each token's patch under conditioning c [B, dim]."""
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=1)
        return self.linear(modulate(self.norm_final(x), shift, scale))


class DiT(nn.Module):
    """The whole network: noisy image, timestep and class in, velocity out."""

    pos_embed: Tensor

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        self.config = config
        self.x_embedder = PatchEmbed(config)
        self.t_embedder = TimestepEmbedder(config.dim)
        self.y_embedder = LabelEmbedder(config.classes, config.dim)
        # Computed, not stored: the same weights serve every resolution.
        self.register_buffer("pos_embed", sincos_positions(config), persistent=False)
        self.blocks = nn.ModuleList(DiTBlock(config, layer) for layer in range(config.depth))
        self.final_layer = FinalLayer(config)
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.x_embedder.proj.weight.view(self.config.dim, -1))
        nn.init.zeros_(self.x_embedder.proj.bias)
        nn.init.normal_(self.y_embedder.embedding_table.weight, std=0.02)
        for index in (0, 2):
            nn.init.normal_(self.t_embedder.mlp[index].weight, std=0.02)
        # adaLN-zero: at first every block is the identity and the output is 0.
        for module in (*self.blocks, self.final_layer):
            nn.init.zeros_(module.adaLN_modulation[1].weight)
        nn.init.zeros_(self.final_layer.linear.weight)

    def set_attention(self, core: AttentionCore) -> None:
        """Let all blocks use `core`; it tells layers apart by its `layer` argument."""
        for block in self.blocks:
            block.attn.core = core

    def embed(self, z: Tensor) -> Tensor:
        """Tokens with positions [B, N, dim] of images z [B, C, px, px]."""
        return self.x_embedder(z) + self.pos_embed

    def condition(self, t: Tensor, y: Tensor) -> Tensor:
        """Conditioning [B, dim] of timesteps float [B] in 0..1000 and classes int64 [B]."""
        return self.t_embedder(t) + self.y_embedder(y)

    def unpatchify(self, patches: Tensor) -> Tensor:
        """Patches [B, N, patch² · C], row-major over the grid, to images [B, C, px, px]."""
        g, p, c = self.config.grid, self.config.patch, self.config.channels
        x = patches.view(len(patches), g, g, p, p, c)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(len(patches), c, g * p, g * p)

    def forward(self, z: Tensor, t: Tensor, y: Tensor) -> Tensor:
        """Predict the velocity.

        Args:
            z: noisy images float [B, C, px, px].
            t: timesteps float [B], 0 (clean) to 1000 (noise).
            y: classes int64 [B]; `config.null_class` for none.

        Returns:
            v = α ε − σ x₀, float [B, C, px, px].
        """
        x, c = self.embed(z), self.condition(t, y)
        for block in self.blocks:
            x = block(x, c)
        return self.unpatchify(self.final_layer(x, c))
