/* Numbers of Adam's missed steps, for C, CUDA and Python. */
#ifndef HFOREST_OPTIM_MISSED_H
#define HFOREST_OPTIM_MISSED_H
enum {
    HF_CENTRE = 2, /* column of the tail table; the coefficients follow */
    HF_FEW = 4     /* number of missed steps that are cheaper taken one by one */
};
#endif
