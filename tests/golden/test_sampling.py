"""Schedule, sampler, network structure and training step, without trained weights."""

import pytest
import torch

from golden.model.dit import DiT, DiTConfig, sincos_positions
from golden.sampling import StepHook, initial_noise, sample
from golden.schedule import clean_and_noise, signal_and_noise
from golden.train import learning_rate_factor, train

SMALL = DiTConfig(size_px=8, dim=32, depth=2, heads=2)


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = DiT(SMALL).eval().requires_grad_(False)
    for parameter in model.parameters():  # adaLN-zero would make the output 0
        parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0])
def test_schedule_runs_from_clean_to_noise(shift):
    u = torch.linspace(0, 1, 11, dtype=torch.float64)
    alpha, sigma = signal_and_noise(u, shift)
    torch.testing.assert_close(alpha**2 + sigma**2, torch.ones_like(u))
    assert (alpha[0], sigma[0], alpha[-1], sigma[-1]) == (1, 0, 0, 1)
    torch.testing.assert_close((sigma / alpha)[5], torch.tensor(shift, dtype=torch.float64))


def test_velocity_inverts():
    x0, noise = torch.randn(2, 3, 1, 4, 4).unbind(0)
    alpha, sigma = torch.tensor(0.6), torch.tensor(0.8)
    got = clean_and_noise(alpha * x0 + sigma * noise, alpha * noise - sigma * x0, alpha, sigma)
    torch.testing.assert_close(got, (x0, noise))


def test_sampler_finds_the_image_of_a_perfect_denoiser(model):
    target = torch.rand(2, 1, 8, 8)

    def perfect(z, t, y):
        alpha, sigma = (s.float() for s in signal_and_noise(t.double() / 1000, 8 / 32))
        alpha, sigma = alpha.view(-1, 1, 1, 1), sigma.view(-1, 1, 1, 1)
        noise = (z - alpha * target) / sigma
        return alpha * noise - sigma * target

    out = sample(model, [0, 1], [5, 6], steps=7, denoiser=perfect)
    torch.testing.assert_close(out, target, atol=1e-5, rtol=0)


def test_sampling_is_deterministic_and_seeded_per_image(model):
    first = sample(model, [3, 4], [10, 11], steps=4)
    assert torch.equal(first, sample(model, [3, 4], [10, 11], steps=4))
    alone = sample(model, [4], [11], steps=4)
    torch.testing.assert_close(alone[0], first[1])  # not to the bit: kernels depend on the batch
    assert not torch.allclose(first, sample(model, [3, 4], [11, 10], steps=4), atol=0.1)
    noise = initial_noise([1, 2], 1, 8)
    assert torch.equal(noise[1], initial_noise([2], 1, 8)[0])


def test_guidance_one_is_off_and_two_extrapolates(model):
    plain = sample(model, [3], [0], steps=1)
    null = sample(model, [SMALL.null_class], [0], steps=1)
    guided = sample(model, [3], [0], steps=1, guidance=2.0)
    # One step ends at x0 = −v, so images extrapolate as velocities do.
    torch.testing.assert_close(guided, null + 2 * (plain - null))
    assert not torch.allclose(plain, null)


def test_hooks_see_every_step_in_order(model):
    class Log(StepHook):
        def __init__(self):
            self.before, self.after = [], []

        def before_step(self, step, z):
            self.before.append((step, z.clone()))

        def after_step(self, step, z, v):
            self.after.append((step, z.clone(), v.clone()))

    log = Log()
    sample(model, [1], [0], steps=5, hooks=[log], stop_after=3)
    assert [s for s, _ in log.before] == [s for s, _, _ in log.after] == [0, 1, 2, 3]
    assert torch.equal(log.before[0][1], initial_noise([0], 1, 8))
    t, y = torch.tensor([1000.0 * 4 / 5]), torch.tensor([1])
    torch.testing.assert_close(log.after[1][2], model(log.before[1][1], t, y))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps: 0 is below 1"),
        ({"seeds": [0, 1]}, "seeds: 2 of them for 1 labels"),
        ({"labels": [11]}, r"labels: 11 is outside 0\.\.10"),
    ],
)
def test_sampler_refuses_bad_inputs(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        sample(**{"model": model, "labels": [0], "seeds": [0]} | arguments)


def test_attention_is_exchangeable_and_told_its_layer(model):
    layers = []

    def zeros(q, k, v, layer):
        layers.append(layer)
        assert q.shape == k.shape == v.shape == (1, 2, 16, 16)
        return torch.zeros_like(q)

    arguments = torch.randn(1, 1, 8, 8), torch.tensor([500.0]), torch.tensor([2])
    dense = model(*arguments)
    model.set_attention(zeros)
    assert not torch.allclose(model(*arguments), dense)
    assert layers == [0, 1]


def test_query_rows_can_be_gathered(model):
    block = model.blocks[0]
    tokens = model.embed(torch.randn(1, 1, 8, 8))
    rows = torch.tensor([2, 3, 11])
    q, k, v = block.attn.split_heads(tokens)
    part = block.attn.merge_heads(block.attn.core(q[:, :, rows], k, v, 0))
    torch.testing.assert_close(part, block.attn(tokens)[:, rows])


def test_patches_return_to_their_place(model):
    patches = torch.arange(16 * 4.0).view(1, 16, 4)
    image = model.unpatchify(patches)
    # Token 6 is row 1, column 2; its patch is row-major too.
    assert image[0, 0, 2:4, 4:6].flatten().tolist() == [24.0, 25.0, 26.0, 27.0]


def test_positions_of_other_resolutions_cover_the_same_range():
    base = sincos_positions(DiTConfig(size_px=32)).view(16, 16, -1)
    fine = sincos_positions(DiTConfig(size_px=64)).view(32, 32, -1)
    torch.testing.assert_close(fine[::2, ::2], base)
    assert torch.equal(base[3, :, 64:], base[3, :1, 64:].expand(16, -1))  # second half: the row


def test_untrained_model_outputs_zero():
    out = DiT(SMALL)(torch.randn(1, 1, 8, 8), torch.tensor([10.0]), torch.tensor([0]))
    assert torch.equal(out, torch.zeros_like(out))


def test_training_lowers_the_loss_and_repeats_to_the_bit():
    images = torch.zeros(20, 1, 8, 8)
    images[:, :, 2:6, 2:6] = 1.5

    def run(iterations):
        torch.manual_seed(1)
        return train(
            DiT(SMALL),
            images,
            torch.arange(20) % 10,
            iterations=iterations,
            batch=16,
            lr=2e-3,
            ema=0.9,
            seed=1,
        )

    (first, start), (again, _), (_, end) = run(4), run(4), run(60)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)
    )
    assert end < 0.7 * start
    torch.manual_seed(1)
    moved = first.x_embedder.proj.weight - DiT(SMALL).x_embedder.proj.weight
    assert moved.abs().max() > 1e-5  # the average follows


def test_learning_rate_warms_up_and_ends_near_zero():
    factors = [learning_rate_factor(i, 100, 10) for i in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9] == factors[50] == 1.0
    assert 0 < factors[99] < 0.03


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size_px": 33}, "size_px: 33 is not a multiple of patch = 2"),
        ({"dim": 130}, "dim: 130 is not a multiple of heads = 4"),
        ({"depth": 0}, "depth: 0 is below 1"),
    ],
)
def test_model_sizes_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        DiTConfig(**arguments)
