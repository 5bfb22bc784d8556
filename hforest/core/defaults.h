/* Bits of a node's default_left: the sides of values that its split does not compare. */
#ifndef HFOREST_DEFAULTS_H
#define HFOREST_DEFAULTS_H
enum { HF_MISSING_LEFT = 1, HF_UNKNOWN_LEFT = 2 };
#endif
