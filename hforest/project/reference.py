"""Reference implementation: projections, sum by sum (Perry et al. 2019, section 2.3: a candidate split
compares a x for a sparse vector a)."""


def _value(row, first, last, indices, data):
    total = 0.0
    for j in range(first, last):
        total += float(data[j]) * float(row[indices[j]])
    return total


def project(x, indptr, indices, data, values):
    """Writes values[p, s] = sum over entries j of projection p, in order, of data[j] x[s, indices[j]]."""
    for p in range(len(indptr) - 1):
        for s in range(len(x)):
            values[p, s] = _value(x[s], indptr[p], indptr[p + 1], indices, data)


def project_some(x, samples, indptr, indices, data, values):
    """Writes the same for some rows of x."""
    for p in range(len(indptr) - 1):
        for i, s in enumerate(samples):
            values[p, i] = _value(x[s], indptr[p], indptr[p + 1], indices, data)
