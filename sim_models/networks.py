"""Dimensions and operators of the diffusion transformers that the performance model knows.

DiT: Peebles and Xie, arXiv 2212.09748 (adaLN-zero in every block, patch 2, 4 or 8).
PixArt-Sigma: Chen et al., arXiv 2403.04692 (adaLN-single, cross-attention to 300 T5 tokens,
no K/V compression).  `digits` is the small model that this project ships.  All attend with
all tokens to all tokens; GELU in its tanh form; MLP four times as wide as the model.

An operator list is one forward pass, in order.  Not listed, being far below 0.1 % of the work:
sinusoids of the timestep, SiLU on conditioning vectors, the look-up of the class.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "projection",
    "attention-dot",
    "attention-axpy",
    "softmax",
    "layernorm",
    "gelu",
    "elementwise",
    "embedding",
    "conditioning",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
MATMUL_KINDS: tuple[Kind, ...] = ("projection", "embedding", "conditioning")
ATTENTION_KINDS: tuple[Kind, ...] = ("attention-dot", "softmax", "attention-axpy")

Depends = Literal["latent", "timestep", "prompt"]

_WEIGHT_BYTES = 1  # int8, symmetric, per output channel
_BIAS_BYTES = 4  # added to the int32 accumulator
_TIMESTEP_FREQUENCIES = 256


@dataclass(frozen=True)
class Network:
    """Sizes of a diffusion transformer at one resolution."""

    name: str
    resolution_px: int
    depth: int
    width: int
    heads: int
    patch: int
    latent_px: int
    """Edge of the transformer's input image: the VAE's latent, or pixels where there is none."""
    in_channels: int
    out_channels: int
    classes: int = 0
    """Rows of the class table, with the null class; 0 if there is no class."""
    text_tokens: int = 0
    """Tokens of the prompt, for cross-attention; 0 if there is none."""
    text_width: int = 0
    """Width of the text encoder's output."""
    adaln: Literal["block", "single"] = "block"
    """Modulation from a linear layer in every block, or from one plus a table a block."""
    mlp_ratio: int = 4

    def __post_init__(self) -> None:
        for field in (
            "resolution_px",
            "depth",
            "width",
            "heads",
            "patch",
            "latent_px",
            "in_channels",
            "out_channels",
            "mlp_ratio",
        ):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: must be at least 1, got {getattr(self, field)}")
        for field in ("classes", "text_tokens", "text_width"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field}: must be at least 0, got {getattr(self, field)}")
        if self.width % self.heads:
            raise ValueError(f"width: must be a multiple of heads ({self.heads}), got {self.width}")
        if self.latent_px % self.patch:
            raise ValueError(
                f"latent_px: must be a multiple of patch ({self.patch}), got {self.latent_px}"
            )
        if (self.text_tokens > 0) != (self.text_width > 0):
            raise ValueError(
                f"text_width: must be above 0 exactly when text_tokens is, got {self.text_width} "
                f"with {self.text_tokens} text tokens"
            )
        if self.adaln not in ("block", "single"):
            raise ValueError(f"adaln: must be 'block' or 'single', got {self.adaln!r}")

    @property
    def tokens(self) -> int:
        """N, image tokens."""
        return (self.latent_px // self.patch) ** 2

    @property
    def head_dim(self) -> int:
        """Elements of a head's query, key or value."""
        return self.width // self.heads

    @property
    def mlp_width(self) -> int:
        """Hidden units of the MLP."""
        return self.mlp_ratio * self.width

    @property
    def parameters(self) -> int:
        """Trained weights, biases and tables; fixed position embeddings do not count."""
        total = sum(op.parameters for op in operators(self))
        total += self.classes * self.width
        if self.adaln == "single":
            total += (6 * self.depth + 2) * self.width  # modulation tables
        if self.text_tokens:
            total += self.text_tokens * self.text_width  # the empty prompt of guidance
        return total


@dataclass(frozen=True)
class Operator:
    """One operator of a forward pass, summed over equal layers.

    A matrix product is [m, k] times [k, n], for each head, layer and guidance branch.  Other
    operators touch [m, n] elements for each of them, and k is 1.
    """

    name: str
    """`group.part`; groups: embedding, conditioning, self, cross, mlp, final."""
    kind: Kind
    m: int
    k: int
    n: int
    heads: int = 1
    repeats: int = 1
    """Layers that have it."""
    batch: int = 1
    """Guidance branches that need their own result."""
    depends_on: Depends = "latent"
    """`timestep` (with the class, where there is one) and `prompt` can be precomputed."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: must be one of {', '.join(KINDS)}, got {self.kind!r}")
        for field in ("m", "k", "n", "heads", "repeats", "batch"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: must be at least 1, got {getattr(self, field)}")

    @property
    def group(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]

    @property
    def precomputable(self) -> bool:
        """Whether its result is the same for every latent."""
        return self.depends_on != "latent"

    @property
    def elements(self) -> int:
        """Results, over all heads, layers and branches."""
        return self.m * self.n * self.heads * self.repeats * self.batch

    @property
    def macs(self) -> int:
        """Multiply-accumulates; 0 if it is no matrix product."""
        if self.kind in MATMUL_KINDS or self.kind in ("attention-dot", "attention-axpy"):
            return self.elements * self.k
        return 0

    @property
    def parameters(self) -> int:
        """Weights and biases, over all layers."""
        return (self.k + 1) * self.n * self.repeats if self.kind in MATMUL_KINDS else 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of int8 weights and int32 biases, over all layers."""
        if self.kind not in MATMUL_KINDS:
            return 0
        return (self.k * _WEIGHT_BYTES + _BIAS_BYTES) * self.n * self.repeats


def _attention(
    group: str, rows: int, columns: int, network: Network, branches: int
) -> list[Operator]:
    d, heads, depth = network.head_dim, network.heads, network.depth
    return [
        Operator(f"{group}.dot", "attention-dot", rows, d, columns, heads, depth, branches),
        Operator(f"{group}.softmax", "softmax", rows, 1, columns, heads, depth, branches),
        Operator(f"{group}.axpy", "attention-axpy", rows, columns, d, heads, depth, branches),
    ]


def operators(network: Network, *, cfg: bool = False) -> list[Operator]:
    """List the operators of one forward pass.

    Parameters
    ----------
    cfg
        Classifier-free guidance: two branches, each with its own class or prompt.  They share
        the patch embedding, the timestep's embedding and modulation that depends on it alone.
    """
    n, h, depth, inner = network.tokens, network.width, network.depth, network.mlp_width
    branches = 2 if cfg else 1
    patch_in = network.patch**2 * network.in_channels
    patch_out = network.patch**2 * network.out_channels

    def matmul(
        name: str,
        shape: tuple[int, int, int],
        kind: Kind = "projection",
        *,
        repeats: int = 1,
        batch: int = branches,
        depends_on: Depends = "latent",
    ) -> Operator:
        return Operator(name, kind, *shape, 1, repeats, batch, depends_on)

    def vector(name: str, kind: Kind, width: int, repeats: int = depth) -> Operator:
        return Operator(name, kind, n, 1, width, 1, repeats, branches)

    ops = [
        matmul("embedding.patch", (n, patch_in, h), "embedding", batch=1),
        Operator("embedding.position", "elementwise", n, 1, h),
        matmul(
            "embedding.timestep1",
            (1, _TIMESTEP_FREQUENCIES, h),
            "embedding",
            batch=1,
            depends_on="timestep",
        ),
        matmul("embedding.timestep2", (1, h, h), "embedding", batch=1, depends_on="timestep"),
    ]
    if network.adaln == "block":
        shape = (1, h, 6 * h)
        ops.append(
            matmul(
                "conditioning.block", shape, "conditioning", repeats=depth, depends_on="timestep"
            )
        )
        shape = (1, h, 2 * h)
        ops.append(matmul("conditioning.final", shape, "conditioning", depends_on="timestep"))
    else:
        shape = (1, h, 6 * h)
        ops.append(
            matmul("conditioning.single", shape, "conditioning", batch=1, depends_on="timestep")
        )
    if network.text_tokens:
        text, width = network.text_tokens, network.text_width
        ops += [
            matmul("embedding.caption1", (text, width, h), "embedding", depends_on="prompt"),
            Operator("embedding.caption_gelu", "gelu", text, 1, h, 1, 1, branches, "prompt"),
            matmul("embedding.caption2", (text, h, h), "embedding", depends_on="prompt"),
        ]
    ops += [
        vector("self.norm", "layernorm", h),
        matmul("self.qkv", (n, h, 3 * h), repeats=depth),
        *_attention("self", n, n, network, branches),
        matmul("self.out", (n, h, h), repeats=depth),
        vector("self.residual", "elementwise", h),
    ]
    if network.text_tokens:  # neither gated nor normalised
        text = network.text_tokens
        ops += [
            matmul("cross.q", (n, h, h), repeats=depth),
            matmul("cross.kv", (text, h, 2 * h), repeats=depth, depends_on="prompt"),
            *_attention("cross", n, text, network, branches),
            matmul("cross.out", (n, h, h), repeats=depth),
            vector("cross.residual", "elementwise", h),
        ]
    ops += [
        vector("mlp.norm", "layernorm", h),
        matmul("mlp.fc1", (n, h, inner), repeats=depth),
        vector("mlp.gelu", "gelu", inner),
        matmul("mlp.fc2", (n, inner, h), repeats=depth),
        vector("mlp.residual", "elementwise", h),
        vector("final.norm", "layernorm", h, 1),
        matmul("final.linear", (n, h, patch_out)),
    ]
    return ops


def total_macs(ops: Iterable[Operator], *names: str) -> int:
    """Sum multiply-accumulates, of the named operators only if names are given."""
    return sum(op.macs for op in ops if not names or op.name in names)


_DIT_SIZES = {"s": (12, 384, 6), "b": (12, 768, 12), "l": (24, 1024, 16), "xl": (28, 1152, 16)}
_VAE_SCALE = 8

_RESOLUTIONS: dict[str, tuple[int, ...]] = {
    **{f"dit-{size}-{patch}": (256, 512) for size in _DIT_SIZES for patch in (2, 4, 8)},
    "pixart-sigma": (256, 512, 1024, 2048),
    "digits": (32, 64),
}

MODELS = tuple(_RESOLUTIONS)


def resolutions(model: str) -> tuple[int, ...]:
    """Return the resolutions in pixels at which a model is known."""
    if model not in _RESOLUTIONS:
        raise ValueError(f"model: must be one of {', '.join(MODELS)}, got {model!r}")
    return _RESOLUTIONS[model]


def get_network(model: str, resolution: int) -> Network:
    """Return a model at a resolution in pixels, or raise `ValueError` with all that is allowed."""
    allowed = resolutions(model)
    if resolution not in allowed:
        raise ValueError(
            f"resolution: must be one of {', '.join(map(str, allowed))} for {model}, "
            f"got {resolution}"
        )
    if model == "digits":
        return Network(model, resolution, 6, 128, 4, 2, resolution, 1, 1, classes=11)
    latent = resolution // _VAE_SCALE
    if model == "pixart-sigma":
        return Network(
            model,
            resolution,
            *_DIT_SIZES["xl"],
            2,
            latent,
            4,
            8,
            text_tokens=300,
            text_width=4096,
            adaln="single",
        )
    _, size, patch = model.split("-")
    # 1,000 ImageNet classes and the null class; the outputs are noise and its variance.
    return Network(model, resolution, *_DIT_SIZES[size], int(patch), latent, 4, 8, classes=1001)
