"""How good the images of an accelerated run are, beside those of the dense run and the data."""

from golden.quality.metrics import frechet_distance, psnr, psnr_per_image, ssim, ssim_per_image
from golden.quality.paired import PsnrDifference, psnr_difference
from golden.quality.report import QualityReport, compare

__all__ = [
    "PsnrDifference",
    "QualityReport",
    "compare",
    "frechet_distance",
    "psnr",
    "psnr_difference",
    "psnr_per_image",
    "ssim",
    "ssim_per_image",
]
