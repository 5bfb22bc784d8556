cdef int catch_up(trees, x, adam, route) except -1
cdef int step_back(trees, grad_y, route, adam, grad_x) except -1
