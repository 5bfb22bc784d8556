cdef int touched_rows(index, n_slots, start, rows) except -1
cdef int count_leaves(leaf, counts) except -1
