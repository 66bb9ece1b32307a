import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disc.config import build, preset
from sim_models.banking import expected_fullest
from sim_models.estimate import Step, estimate, plot_latency
from sim_models.networks import get_network, operators, total_macs


class TwoPasses:
    """Scores and P*V visit the fullest bank's columns once each; no latency."""

    def __init__(self, lanes):
        self.lanes = lanes
        self.calls = []

    def cycles(self, rows, columns, head_dim, fullest):
        self.calls.append((rows, columns, head_dim, fullest))
        steps = np.broadcast_to(np.asarray(fullest, dtype=float), rows)
        return float(2 * steps.sum() * -(-head_dim // self.lanes))


@dataclass
class Fit:
    config_digest: str
    id: str = "fit-1"


def config(**changes):
    fields = preset("edge").model_dump()
    for path, value in changes.items():
        section, _, field = path.partition("__")
        if field:
            fields[section][field] = value
        else:
            fields[section] = value
    return build(fields)


EDGE = config()
XL = get_network("dit-xl-2", 256)


def run(network=XL, chip=EDGE, calibration=None, **step):
    engine = TwoPasses(chip.array.lanes)
    report = estimate(network, chip, engine, Step(**step), calibration=calibration)
    return report, engine


def find(report, name):
    return next(op for op in report.operators if op.name == name)


def test_dense_product_by_hand():
    report, _ = run()
    op = find(report, "mlp.fc1")
    # 256 rows on 4 cores, 4608 columns in 16 banks, 1152 elements in words of 24, 28 layers.
    assert op.array_cycles == 28 * 64 * 288 * 48
    assert op.vector_cycles == 28 * 64 * 4608 // 8
    assert op.macs == 28 * 256 * 1152 * 4608
    assert op.utilisation == 1
    assert (op.bound, op.basis) == ("array", "formula")
    assert op.time_us == op.cycles / 500


def test_product_shared_by_columns_reads_rows_again_for_each_tile_of_weights():
    # A core's 72 groups of 48 words need 4 tiles of 1024 bank words.
    weights, inputs, outputs = 4608 * (1152 + 4), 256 * 1152, 256 * 4608
    op = find(run()[0], "mlp.fc1")
    assert (op.mapping, op.bytes) == ("columns", 28 * (weights + 4 * inputs + outputs))
    op = find(run(chip=config(memory__bank_words=4096))[0], "mlp.fc1")
    assert (op.mapping, op.bytes) == ("columns", 28 * (weights + inputs + outputs))


def test_product_shared_by_rows_reads_weights_again_for_each_tile_of_rows():
    # 72 column groups do not divide into 16 cores, 256 rows do.  A row is 48 words; 384 query
    # words hold 8 of a core's 16 rows.
    weights, inputs, outputs = 1152 * (1152 + 4), 256 * 1152, 256 * 1152
    chip = config(cores=16, memory__row_words=384, dram__channels=16)
    op = find(run(chip=chip)[0], "self.out")
    assert (op.mapping, op.bytes) == ("rows", 28 * (2 * weights + inputs + outputs))
    assert op.array_cycles == 28 * 16 * 72 * 48


def test_products_of_one_row_are_shared_by_columns_and_wait_for_weights():
    report, _ = run()
    op = find(report, "conditioning.block")
    assert (op.mapping, op.bound) == ("columns", "DRAM")
    assert op.array_cycles == 28 * (6912 // 16 // 4) * 48
    assert op.bytes == 28 * (6912 * 1156 + 1152 + 6912)
    assert op.time_us == pytest.approx(op.bytes / 51.2e3)  # 51.2 GB/s


def test_attention_by_hand():
    report, engine = run()
    assert engine.calls == [(256, 256, 72, 16.0)]
    op = find(report, "self.attention")
    # 16 heads on 4 cores; each row visits 16 columns of a bank twice, 3 words each.
    assert op.array_cycles == 28 * 4 * 256 * 2 * 16 * 3
    assert op.macs == 28 * 16 * 2 * 256 * 256 * 72
    assert op.bytes == 28 * 16 * 4 * 256 * 72  # q, k, v in, the result out
    assert op.utilisation == 1
    assert op.vector_cycles == 0


def test_rows_of_a_head_are_shared_when_there_are_more_cores_than_heads():
    report, engine = run(chip=config(cores=64))
    assert engine.calls == [(64, 256, 72, 16.0)]
    op = find(report, "self.attention")
    assert op.array_cycles == 28 * 64 * 2 * 16 * 3
    assert op.bytes == 28 * 16 * (2 * 256 * 72 * 4 + 2 * 256 * 72)  # K and V to four cores


def test_row_tiles_of_a_head_that_fits_one_key_tile_share_k_and_v():
    report, engine = run(get_network("dit-xl-2", 512))
    assert engine.calls == [(256, 1024, 72, 64.0)]
    assert find(report, "self.attention").bytes == 28 * 16 * 4 * 1024 * 72


def test_long_rows_take_key_tiles_and_reload_k_and_v_for_each_row_tile():
    network = get_network("pixart-sigma", 1024)  # 4096 tokens; edge: 1024 columns, 256 rows
    report, engine = run(network, calibration=Fit(EDGE.digest))
    assert engine.calls[0] == (256, 1024, 72, 64.0)
    op = find(report, "self.attention")
    assert op.array_cycles == 28 * 16 * 16 // 4 * 4 * 256 * 2 * 64 * 3
    assert op.vector_cycles == 28 * 16 * 16 // 4 * 3 * 256 * 72 // 8
    assert op.bytes == 28 * 16 * (16 * 2 * 4096 * 72 + 2 * 4096 * 72)
    assert op.basis == "formula (extrapolated)"  # merging key tiles was not measured
    assert find(report, "cross.attention").basis == "calibrated"


def test_banks_too_small_for_k_and_v_of_all_columns_shrink_the_key_tile():
    # 3 words a row: 128 bank words hold 21 columns of K and V, so 336 columns in 16 banks.
    chip = config(memory__bank_words=128, memory__columns=1024)
    _, engine = run(get_network("dit-xl-2", 512), chip)
    assert engine.calls[0][:2] == (256, 256)  # 1024 columns in 4 tiles


def test_cross_attention_is_dense_and_its_text_is_not_reused():
    report, engine = run(get_network("pixart-sigma", 256), density=0.3, computed_fraction=0.5)
    assert [call[:2] for call in engine.calls] == [(128, 256), (128, 300)]
    assert engine.calls[0][3] == expected_fullest(256, 16, 0.3)
    assert engine.calls[1][3] == 19  # ceil(300 / 16)
    assert find(report, "cross.kv").macs == 28 * 300 * 1152 * 2304


def test_measured_utilisation_replaces_the_expectation():
    _, engine = run(density=0.3, utilisation=0.75)
    assert engine.calls[0][3] == pytest.approx(0.3 * 16 / 0.75)
    _, engine = run(density=0.9, utilisation=0.5)
    assert engine.calls[0][3] == 16  # a bank has no more columns
    _, engine = run(density=1.0, utilisation=0.5)
    assert engine.calls[0][3] == 16


def test_dense_macs_are_those_of_the_network():
    for network in (XL, get_network("pixart-sigma", 512), get_network("digits", 32)):
        for cfg in (False, True):
            report, _ = run(network, cfg=cfg)
            assert report.macs == total_macs(operators(network, cfg=cfg))


def test_reuse_and_sparsity_scale_the_work():
    dense, _ = run()
    report, _ = run(density=0.25, computed_fraction=0.5)
    assert find(report, "self.attention").macs == find(dense, "self.attention").macs // 8
    assert find(report, "self.qkv").macs == find(dense, "self.qkv").macs // 2
    assert find(report, "embedding.patch").macs == find(dense, "embedding.patch").macs
    assert find(report, "final.linear").macs == find(dense, "final.linear").macs
    attention = find(report, "self.attention")
    # All of K and V, half of the queries and results, half of the mask.
    assert attention.bytes == 28 * 16 * (2 * 256 * 72 + 2 * 128 * 72 + 128 * 32)
    assert find(report, "reuse.forecast").bytes == 128 * 1152 * 6
    assert find(report, "self.sharing").bytes == 28 * 128 * 1152
    names = {op.name for op in dense.operators}
    assert {op.name for op in report.operators} - names == {"reuse.forecast", "self.sharing"}


def test_vector_operators_by_hand():
    report, _ = run()
    norm = find(report, "self.norm")
    assert norm.vector_cycles == 28 * 64 * 1152 // 8
    assert norm.bytes == 28 * 256 * 1152 * 3
    assert (norm.array_cycles, norm.macs, norm.utilisation) == (0, 0, 0)
    assert find(report, "mlp.residual").bytes == 28 * 256 * 1152 * 5


def test_precomputed_leaves_out_what_does_not_depend_on_the_latent():
    network = get_network("pixart-sigma", 256)
    full, _ = run(network)
    report, _ = run(network, precomputed=True)
    left_out = {op.name for op in full.operators} - {op.name for op in report.operators}
    assert left_out == {
        "embedding.timestep1",
        "embedding.timestep2",
        "conditioning.single",
        "embedding.caption1",
        "embedding.caption2",
        "cross.kv",
    }


def test_basis_says_what_was_calibrated():
    def basis(calibration):
        report, _ = run(calibration=calibration)
        kinds = {op.kind: op.basis for op in report.operators}
        assert {b for kind, b in kinds.items() if kind != "attention"} == {"formula"}
        return kinds["attention"], report.calibration_id

    assert basis(Fit(EDGE.digest)) == ("calibrated", "fit-1")
    assert basis(Fit("other")) == ("formula (extrapolated)", "fit-1")
    assert basis(None) == ("formula (extrapolated)", None)


@given(
    st.sampled_from(["dit-xl-2", "dit-s-8", "pixart-sigma", "digits"]),
    st.sampled_from(["tiny", "edge", "server"]),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
    st.booleans(),
)
def test_totals_are_the_sum_of_the_parts(model, name, density, fraction, cfg):
    network = get_network(model, 32 if model == "digits" else 256)
    report, _ = run(network, preset(name), density=density, computed_fraction=fraction, cfg=cfg)
    data = report.to_json()
    total = data["total"]
    for field in ("cycles", "time_us", "macs", "bytes"):
        assert total[field] == pytest.approx(sum(op[field] for op in data["operators"]))
    for parts in (total["time_us_by_bound"], total["time_us_by_basis"]):
        assert sum(parts.values()) == pytest.approx(total["time_us"])
    for op in report.operators:
        assert op.cycles == max(op.array_cycles, op.vector_cycles, op.dram_cycles) > 0
        assert 0 <= op.utilisation <= 1
        bound = {"array": op.array_cycles, "vector": op.vector_cycles, "DRAM": op.dram_cycles}
        assert bound[op.bound] == op.cycles


def test_json_identifies_what_was_estimated():
    report, _ = run(calibration=Fit(EDGE.digest), density=0.5)
    data = json.loads(json.dumps(report.to_json()))
    assert data["schema"] == 1
    assert data["config"] == {"name": "edge", "digest": EDGE.digest}
    assert data["calibration_id"] == "fit-1"
    assert data["network"]["name"] == "dit-xl-2"
    assert data["step"]["density"] == 0.5
    assert data["operators"][0]["basis"] == "formula"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Step(density=0.0), "density: must be above 0 and at most 1, got 0.0"),
        (lambda: Step(utilisation=1.5), "utilisation: must be above 0"),
        (lambda: Step(computed_fraction=-1), "computed_fraction: must be above 0"),
        (
            lambda: run(chip=config(memory__head_dim=64)),
            "memory.head_dim: must be at least 72 for dit-xl-2, got 64",
        ),
        (
            lambda: run(
                chip=config(
                    array__lanes=2,
                    vector__lanes=2,
                    memory__bank_words=16,
                    memory__columns=128,
                    memory__query_rows=64,
                )
            ),
            "memory.bank_words: must be at least 72, one column",
        ),
        (lambda: plot_latency(run()[0], "x.pdf"), "path: must end in .png or .svg, got 'x.pdf'"),
    ],
)
def test_errors_name_the_field(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_figure_sums_small_operators_and_is_written_in_both_formats(tmp_path):
    report, _ = run(density=0.3, computed_fraction=0.5)
    plot_latency(report, tmp_path / "t.png")
    plot_latency(report, tmp_path / "t.svg", smallest_share=0.1)
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "t.svg").read_text()
    shown = [op for op in report.operators if op.time_us >= 0.1 * report.time_us]
    others = f"{len(report.operators) - len(shown)} others"
    for text in (*(op.name for op in shown), others, "time per denoising step (ms)"):
        assert f"<!-- {text} -->" in svg
    assert "<!-- final.linear -->" not in svg
