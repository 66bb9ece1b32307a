"""What docs/diffusers.md shows runs, and its figures are those of its formulas."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import PixArtSigmaPipeline
from small_diffusers import (
    DEPTH,
    HEADS,
    TOKENS,
    WIDTH,
    attached,
    conditioning,
    evaluate,
    latent_walk,
    pipeline,
    transformer,
)
from transformers import T5Config, T5EncoderModel, T5Tokenizer

from disc.schedule import CTRConfig, STConfig
from golden.accelerate import bench

PAGE = (Path(__file__).parents[2] / "docs" / "diffusers.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Where small random checkpoints have the names of the real ones."""
    folder = tmp_path_factory.mktemp("checkpoints")
    pipeline("dit", "ddim").save_pretrained(folder / "DiT-XL-2-512")
    letters = [(c, -2.0) for c in "▁abcdefghijklmnopqrstuvwxyz"]
    tokenizer = T5Tokenizer(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -1.0), *letters])
    config = T5Config(
        d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=len(tokenizer)
    )
    pixart = pipeline("pixart", "dpm")
    pixart = PixArtSigmaPipeline(
        tokenizer=tokenizer,
        text_encoder=T5EncoderModel(config).eval(),
        vae=pixart.vae,
        transformer=pixart.transformer,
        scheduler=pixart.scheduler,
    )
    pixart.save_pretrained(folder / "PixArt-Sigma-XL-2-1024-MS")
    return folder


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number, folders, monkeypatch) -> None:
    monkeypatch.chdir(folders)
    exec(compile(BLOCKS[number], f"docs/diffusers.md, block {number}", "exec"), {})


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 4


def test_report_has_a_line_a_step(folders, monkeypatch, capsys) -> None:
    monkeypatch.chdir(folders)
    exec(BLOCKS[0], {})
    lines = capsys.readouterr().out.splitlines()
    timeline = re.match(r"schedule: 20 steps, (\S+);", lines[0])[1]
    assert [i for i, letter in enumerate(timeline) if letter == "M"] == [0, 4, 8, 12, 16]
    assert [line.split()[0].rstrip("R") for line in lines[2:22]] == [str(i) for i in range(20)]
    assert lines[22].startswith("work: ")
    assert (folders / "dog.png").is_file()


def kept_bytes(*, layers: int, images: int, tokens: int, width: int, heads: int, value: int) -> Any:
    """The formulas of the page, with a forecast of order 1."""
    rows = images * tokens
    return {
        "keys": 2 * layers * rows * width * value,
        "residuals": layers * rows * width * value,
        "sums": 2 * rows * (width * value + 8),
        "masks": layers * images * heads * tokens**2,
        "shared": layers * images * tokens**2,
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", ["each", "shared"])
@pytest.mark.parametrize("kind", ["dit", "pixart"])
def test_formulas_of_memory(kind, heads, dtype) -> None:
    model = transformer(kind).to(dtype)
    given = {k: v.to(dtype) if "hidden" in k else v for k, v in conditioning(kind, 2).items()}
    settings = {"ctr": CTRConfig(reuse=0.5), "st": STConfig(alpha=1, heads=heads)}
    with attached(model, steps=5, **settings) as accelerator:
        evaluate(model, [z.to(dtype) for z in latent_walk(2, 5)], given)
        layers = list(accelerator.attention.layers.values())
        sums = accelerator._sums
    expected = kept_bytes(
        layers=DEPTH, images=2, tokens=TOKENS, width=WIDTH, heads=HEADS, value=dtype.itemsize
    )
    assert sum(s.k.nbytes + s.v.nbytes for s in layers) == expected["keys"]
    assert sum(s.residual.nbytes for s in layers) == expected["residuals"]
    assert sum(x.nbytes for x in (*sums._sums, *sums._steps)) == expected["sums"]
    masks = expected["masks" if heads == "each" else "shared"]
    assert sum(s.mask.nbytes for s in layers) == masks


@pytest.mark.parametrize("tokens", [1024, 4096, 16384])
def test_figures_of_memory(tokens) -> None:
    row = next(line for line in PAGE.splitlines() if f"px | {tokens:,} |" in line)
    sizes = kept_bytes(layers=28, images=2, tokens=tokens, width=1152, heads=16, value=2)
    assert re.findall(r"([\d.]+) GB", row) == [f"{size / 1e9:.2f}" for size in sizes.values()]


SMALL = ["--width=32", "--heads=4", "--depth=2", "--edge=8", "--repeat=1", "--alpha=1"]


@pytest.mark.parametrize("kind", ["dit", "pixart"])
def test_benchmark(kind, capsys) -> None:
    bench.main(["--model", kind, *SMALL])
    head, *lines = capsys.readouterr().out.splitlines()
    assert "64 tokens" in head
    dense, ctr, st, both = (int(re.search(r"work\s+(\d+)%", line)[1]) for line in lines)
    assert dense == 100
    assert both <= ctr < st < 100


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--steps=0", "steps: 0 is below 1"),
        ("--heads=5", "width: 32 is not a multiple of heads = 5"),
        ("--reuse=2", "reuse"),
    ],
)
def test_benchmark_refuses(argument, message, capsys) -> None:
    with pytest.raises(SystemExit) as error:
        bench.main([*SMALL, argument])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


def test_attach_does_not_import_diffusers() -> None:
    """Those who do not use diffusers do not need it; it takes seconds to import."""
    code = (
        "import sys; sys.modules['diffusers'] = None\n"
        "import golden; from golden.model import DiT, DiTConfig\n"
        "from golden.model.to_diffusers import to_diffusers\n"
        "model = DiT(DiTConfig(dim=32, heads=2, depth=1)).eval()\n"
        "golden.attach(model, steps=3)\n"
        "try:\n    to_diffusers(model)\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install 'disc-accelerator[diffusers]'" in done.stdout
