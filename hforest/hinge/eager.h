/* Vertices of the first levels of a tree move at every step of Adam; Cython, CUDA and Python read their numbers. */
#ifndef HFOREST_HINGE_EAGER_H
#define HFOREST_HINGE_EAGER_H
enum { HF_EAGER_LEVELS = 10, HF_EAGER = 1023 };
#endif
