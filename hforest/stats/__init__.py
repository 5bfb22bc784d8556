"""Honest forests, and tests of dependence with valid p-values.

The splits of an honest tree come from some rows, its leaf values from others; it predicts the remaining rows
out-of-bag. Statistics of these posteriors measure the dependence of y on x. All functions work with any
forest.

Samples, labels and targets are array-likes. Everything runs on the CPU; CuPy arrays raise TypeError. Wrong
types and dtypes raise TypeError, wrong shapes and values ValueError, labels out of range IndexError.
"""

from .conditional import ConditionalTest, conditional_randomization_test, conditional_test
from .dependence import DistanceCorrelation, distance_correlation
from .honest import HonestCounts, honest_counts
from .importances import ImportanceTest, OobImportance, importance_test, oob_importance
from .intervals import ConfidenceIntervals, confidence_intervals
from .permutation import permutation_test, split_test
from .posteriors import Posterior, posterior
from .problem import PermutationTest
from .statistics import accuracy, auc, information, mse, mutual_information, partial_auc, sensitivity

__all__ = [
    "ConditionalTest",
    "ConfidenceIntervals",
    "DistanceCorrelation",
    "HonestCounts",
    "ImportanceTest",
    "OobImportance",
    "PermutationTest",
    "Posterior",
    "accuracy",
    "auc",
    "conditional_randomization_test",
    "conditional_test",
    "confidence_intervals",
    "distance_correlation",
    "honest_counts",
    "importance_test",
    "information",
    "mse",
    "mutual_information",
    "oob_importance",
    "partial_auc",
    "permutation_test",
    "posterior",
    "sensitivity",
    "split_test",
]
