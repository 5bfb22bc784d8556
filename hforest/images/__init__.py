"""Labels of pixels: forests on windows of images, channels, scores.

A forest reads the window around a pixel and predicts the pixel's class (Norouzi et al. 2015, section 6.2).
Pixels are drawn per tree, balanced by class; shares are weighted back by the factor by which each class was
over- or undersampled. Any function that grows forests is the learner. Images have one to three axes of space,
(n_images, height, width, n_channels); everything is built from public functions of other subpackages.

Images and labels are what `numpy.asarray` takes. Everything runs on the CPU; CuPy arrays raise TypeError.
Wrong kinds and dtypes raise TypeError, wrong shapes and values ValueError, labels out of range IndexError.
"""

from .channels import boxes, coordinates, gradients, opponent
from .drawing import Draws, draw
from .files import load, save
from .fitting import fit
from .model import Model
from .predicting import predict, predict_labels
from .scores import Scores, confusion, scores

__all__ = [
    "Draws",
    "Model",
    "Scores",
    "boxes",
    "confusion",
    "coordinates",
    "draw",
    "fit",
    "gradients",
    "load",
    "opponent",
    "predict",
    "predict_labels",
    "save",
    "scores",
]
