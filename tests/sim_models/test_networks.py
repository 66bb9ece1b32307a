import dataclasses

import pytest

from sim_models.networks import (
    MODELS,
    Network,
    Operator,
    get_network,
    operators,
    resolutions,
    total_macs,
)

QKVO = ("self.qkv", "self.out")
CORE = ("self.dot", "self.axpy")
CROSS = ("cross.q", "cross.kv", "cross.dot", "cross.axpy", "cross.out")
FFN = ("mlp.fc1", "mlp.fc2")
TIMESTEP_MLP = ("embedding.timestep1", "embedding.timestep2")


def gflop(network, *names):
    return 2e-9 * total_macs(operators(network), *names)


def measured_gflop(network):
    """Total as counted in diffusers, whose DiT blocks each run the timestep MLP again."""
    again = network.depth if network.adaln == "block" else 0
    return gflop(network) + again * gflop(network, *TIMESTEP_MLP)


# Counted in diffusers 0.42.1 with PyTorch's FlopCounterMode, printed digits.
DIT_TOTALS = {
    ("s", 256): ("12.1", "2.83", "0.72"),
    ("s", 512): ("62.9", "12.15", "2.86"),
    ("b", 256): ("46.0", "11.15", "2.85"),
    ("b", 512): ("212.8", "46.1", "11.2"),
    ("l", 256): ("161.5", "39.5", "10.1"),
    ("l", 512): ("722.0", "161.5", "39.5"),
    ("xl", 256): ("237.3", "58.2", "14.9"),
    ("xl", 512): ("1049.2", "237.4", "58.3"),
}


def same_to_the_printed_digit(value, printed):
    digits = len(printed.partition(".")[2])
    return f"{value:.{digits}f}" == printed


@pytest.mark.parametrize(("size", "resolution"), DIT_TOTALS)
def test_dit_totals_match_the_measured_ones(size, resolution):
    for patch, printed in zip((2, 4, 8), DIT_TOTALS[size, resolution], strict=True):
        value = measured_gflop(get_network(f"dit-{size}-{patch}", resolution))
        assert same_to_the_printed_digit(value, printed), (patch, value, printed)


@pytest.mark.parametrize(
    ("model", "resolution", "qkvo", "core", "cross", "ffn", "total"),
    [
        ("dit-xl-2", 256, "76.1", "8.5", "0.0", "152.2", "237.3"),
        ("dit-xl-2", 512, "304.4", "135.3", "0.0", "608.8", "1049.2"),
        ("pixart-sigma", 256, "76.1", "8.5", "92.6", "152.2", "333.0"),
        ("pixart-sigma", 512, "304.4", "135.3", "236.4", "608.8", "1288.7"),
        ("pixart-sigma", 1024, "1218", "2165", "812", "2435", "6634"),
        ("pixart-sigma", 2048, "4870", "34635", "3114", "9741", "52366"),
    ],
)
def test_parts_match_the_measured_ones(model, resolution, qkvo, core, cross, ffn, total):
    network = get_network(model, resolution)
    for names, printed in ((QKVO, qkvo), (CORE, core), (CROSS, cross), (FFN, ffn)):
        value = gflop(network, *names)
        assert same_to_the_printed_digit(value, printed), (names, value, printed)
    assert same_to_the_printed_digit(measured_gflop(network), total)


def test_published_macs_of_dit_xl_2():
    # arXiv 2212.09748 and its repository: 119 and 525 Gflops, which are multiply-accumulates.
    assert round(total_macs(operators(get_network("dit-xl-2", 256))) / 1e9) == 119
    assert round(total_macs(operators(get_network("dit-xl-2", 512))) / 1e9) == 525


@pytest.mark.parametrize(
    ("model", "millions"),
    [
        ("dit-s-2", "32.9"),
        ("dit-b-2", "130.3"),
        ("dit-l-2", "457.8"),
        ("dit-xl-2", "674.8"),
    ],
)
def test_parameters_match_the_published_ones(model, millions):
    assert f"{get_network(model, 256).parameters / 1e6:.1f}" == millions


def test_parameters_of_pixart():
    # 610.86 million in diffusers, which does not count the table of the empty prompt.
    network = get_network("pixart-sigma", 1024)
    assert f"{(network.parameters - 300 * 4096) / 1e6:.2f}" == "610.86"


@pytest.mark.parametrize(
    ("model", "resolution", "tokens", "head_dim"),
    [
        ("dit-xl-2", 256, 256, 72),
        ("dit-s-8", 512, 64, 64),
        ("pixart-sigma", 2048, 16384, 72),
        ("digits", 32, 256, 32),
        ("digits", 64, 1024, 32),
    ],
)
def test_tokens_and_head_dimension(model, resolution, tokens, head_dim):
    network = get_network(model, resolution)
    assert (network.tokens, network.head_dim) == (tokens, head_dim)


def test_shapes_of_cross_attention():
    ops = {op.name: op for op in operators(get_network("pixart-sigma", 256))}
    shapes = {
        part: (ops[f"cross.{part}"].m, ops[f"cross.{part}"].k, ops[f"cross.{part}"].n)
        for part in ("kv", "dot", "softmax", "axpy")
    }
    assert shapes == {
        "kv": (300, 1152, 2304),
        "dot": (256, 72, 300),
        "softmax": (256, 1, 300),
        "axpy": (256, 300, 72),
    }
    assert {ops[f"cross.{part}"].heads for part in ("dot", "softmax", "axpy")} == {16}


def test_softmax_elements():
    def softmax(resolution):
        ops = operators(get_network("pixart-sigma", resolution))
        return next(op.elements for op in ops if op.name == "self.softmax")

    assert [round(softmax(px) / 1e6) for px in (256, 512)] == [29, 470]
    assert [round(softmax(px) / 1e9, 1) for px in (1024, 2048)] == [7.5, 120.3]


def test_precomputable_work_of_pixart():
    ops = operators(get_network("pixart-sigma", 256))
    prompt = [op for op in ops if op.depends_on == "prompt"]
    assert f"{2e-9 * total_macs(prompt):.1f}" == "48.2"  # caption MLP, cross-attention K and V
    assert all(op.precomputable for op in prompt)
    latent = [op for op in ops if not op.precomputable]
    assert total_macs(latent, *CROSS) == 28 * 256 * 1152 * (2 * 1152 + 2 * 300)


def test_adaln_weights_of_dit():
    op = next(o for o in operators(get_network("dit-xl-2", 256)) if o.name == "conditioning.block")
    assert op.depends_on == "timestep"
    assert f"{op.parameters / 1e6:.0f}" == "223"
    assert op.weight_bytes == 28 * 6912 * (1152 + 4)


@pytest.mark.parametrize("model", MODELS)
def test_guidance_doubles_what_depends_on_the_branch(model):
    network = get_network(model, resolutions(model)[0])
    one, two = operators(network), operators(network, cfg=True)
    shared = {
        "embedding.patch",
        "embedding.position",
        "embedding.timestep1",
        "embedding.timestep2",
        "conditioning.single",
    }
    for single, double in zip(one, two, strict=True):
        factor = 1 if single.name in shared else 2
        assert double.elements == factor * single.elements, single.name
        assert double.macs == factor * single.macs
        assert double.weight_bytes == single.weight_bytes


def test_vector_operators_have_neither_macs_nor_weights():
    for op in operators(get_network("pixart-sigma", 256)):
        if op.kind in ("softmax", "layernorm", "gelu", "elementwise"):
            assert (op.macs, op.weight_bytes, op.parameters) == (0, 0, 0)
            assert op.elements > 0
        else:
            assert op.macs > 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_network("sdxl", 256), r"model: must be one of dit-s-2, .*digits, got 'sdxl'"),
        (
            lambda: get_network("pixart-sigma", 300),
            r"resolution: must be one of 256, 512, 1024, 2048 for pixart-sigma, got 300",
        ),
        (lambda: change(heads=7), r"width: must be a multiple of heads \(7\), got 1152"),
        (lambda: change(patch=3), r"latent_px: must be a multiple of patch \(3\), got 32"),
        (lambda: change(depth=0), r"depth: must be at least 1, got 0"),
        (lambda: change(classes=-1), r"classes: must be at least 0, got -1"),
        (lambda: change(text_tokens=5), r"text_width: must be above 0 exactly when"),
        (lambda: change(adaln="none"), r"adaln: must be 'block' or 'single', got 'none'"),
        (lambda: Operator("a.b", "sort", 1, 1, 1), r"kind: must be one of projection, .*'sort'"),
        (lambda: Operator("a.b", "gelu", 1, 1, 0), r"n: must be at least 1, got 0"),
    ],
)
def test_errors_name_the_field(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def change(**fields) -> Network:
    return dataclasses.replace(get_network("dit-xl-2", 256), **fields)
