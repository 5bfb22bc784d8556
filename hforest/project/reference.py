"""The law: projections, sum by sum (p3 section 2.3: a candidate split looks at a x for a sparse vector a)."""


def _value(row, first, last, index, weight):
    total = 0.0
    for j in range(first, last):
        total += float(weight[j]) * float(row[index[j]])
    return total


def project(x, start, index, weight, values):
    """values[p, s] = sum over the entries j of projection p, in their order, of weight[j] x[s, index[j]]."""
    for p in range(len(start) - 1):
        for s in range(len(x)):
            values[p, s] = _value(x[s], start[p], start[p + 1], index, weight)


def project_some(x, samples, start, index, weight, values):
    """The same for some rows of x."""
    for p in range(len(start) - 1):
        for i, s in enumerate(samples):
            values[p, i] = _value(x[s], start[p], start[p + 1], index, weight)
