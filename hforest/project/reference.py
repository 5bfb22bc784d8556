"""Reference implementation: projections, sum by sum (Perry et al. 2019, section 2.3: a candidate split
compares a x for a sparse vector a)."""


def project_some(x, samples, indptr, indices, data, values):
    """Writes values[p, i] = sum over entries j of projection p, in order, of data[j] x[s, indices[j]].

    s is samples[i], or i if `samples` is None.
    """
    for p in range(len(indptr) - 1):
        for i, s in enumerate(range(len(x)) if samples is None else samples):
            total = 0.0
            for j in range(indptr[p], indptr[p + 1]):
                total += float(data[j]) * float(x[s, indices[j]])
            values[p, i] = total
