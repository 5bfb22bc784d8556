from ...core.aliases import FloatArray, IntArray
from ...core.projections import Distribution

_State = tuple[IntArray, IntArray, IntArray]

def draw_projections(
    distribution: Distribution, keys: IntArray, n_projections: int
) -> tuple[IntArray, IntArray, FloatArray]: ...
def find_bins(
    values: FloatArray, start: IntArray, limits: FloatArray, missing: IntArray, bins: IntArray
) -> None: ...
def sampled_features(keys: IntArray, first: int, count: int, n_columns: int) -> IntArray: ...
def histograms(
    codes: IntArray,
    labels: IntArray | None,
    targets: IntArray | None,
    n_outputs: int,
    state: _State,
    node: IntArray,
    column: IntArray,
    cells: IntArray,
) -> IntArray: ...
def in_units(
    targets: FloatArray, state: _State, node: IntArray, centre: FloatArray, exponent: IntArray
) -> tuple[IntArray, FloatArray, IntArray]: ...
def leaf_totals(q: IntArray, state: _State, node: IntArray) -> IntArray: ...
def partitioned(
    codes: IntArray, state: _State, column: IntArray, tables: IntArray, goes_left: IntArray
) -> _State: ...
