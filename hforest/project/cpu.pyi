from ..core.aliases import FloatArray, IntArray

def project(
    x: FloatArray, indptr: IntArray, indices: IntArray, data: FloatArray, values: FloatArray
) -> None: ...
def project_some(
    x: FloatArray,
    samples: IntArray,
    indptr: IntArray,
    indices: IntArray,
    data: FloatArray,
    values: FloatArray,
) -> None: ...
