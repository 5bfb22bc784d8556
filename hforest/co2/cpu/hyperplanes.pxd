from hforest.co2.cpu.oc1_search cimport hf_oc1
from hforest.co2.cpu.rows cimport hf_rows
from hforest.co2.cpu.stump_fit cimport hf_schedule
from hforest.growth.cpu.sources.columns cimport hf_columns
from hforest.growth.cpu.task cimport hf_source


# Hyperplanes w.x = offset, one fitted in each node.
ctypedef struct hf_hyperplanes:
    hf_columns columns       # for the univariate split from which a fit starts
    hf_rows rows             # rows of x, with the offset
    hf_schedule schedule     # of CO2's stumps
    bint has_search          # OC1's search is used instead
    hf_oc1 search

cdef hf_source source_of_hyperplanes(const hf_hyperplanes* hyperplanes) noexcept nogil
