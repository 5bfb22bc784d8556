from ...core.aliases import FloatArray, IntArray

def best_splits(
    total: IntArray,
    sums: IntArray,
    cells: IntArray,
    missing: IntArray,
    categorical: IntArray,
    sign: IntArray,
    criterion: int,
    min_leaf: int,
    least_weight: FloatArray,
    all_sampled: bool,
    bounds: FloatArray,
    exponent: IntArray,
) -> tuple[FloatArray, IntArray, IntArray]: ...
