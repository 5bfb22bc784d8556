cdef int catch_up(fern, x, parameters, state, step, settings, route) except -1
cdef int step_back(grad_y, route, parameters, state, step, settings, double divisor, grad_x) except -1
