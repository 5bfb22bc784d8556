"""Arguments and workspaces of walks for Shapley values."""

from libc.stdint cimport int8_t, int32_t, int64_t

from hforest.tree.cpu.walk cimport Walk

cdef struct Size:
    int64_t depth         # splits of the longest path
    int64_t n_players     # the most features that the splits of one path compare


cdef struct Level:
    # A node on the path of a walk, and the edge into it.
    int64_t node
    int64_t above         # level of the last edge above by the same feature; 0 if there is none
    int32_t feature
    int8_t n_visited      # children that were visited
    bint right            # the sample goes right at the node
    bint one              # o of the feature of the edge
    double zero           # z of the feature of the edge


cdef struct Frame:
    # A split whose side depends on where a feature comes from: from x first, then from the background.
    int64_t node
    int32_t feature
    bint second


cdef struct Job:
    # The arguments of a call. Arrays of points have n_points entries.
    Walk walk
    Size size
    int64_t n_outputs
    int64_t block
    double* values        # OUT (n_samples, n_features, n_outputs), zeros
    # Path-dependent values:
    const double* share   # (n_nodes,)
    int64_t n_points
    const double* point   # t
    const double* rest    # 1 - t
    const double* cold    # -1 / (1 - t), which is c of a feature with o = 0
    const double* weight
    # Interventional values:
    const char* background
    int64_t n_background
    const double* row_weight     # (n_background,), sum 1
    const double* table          # (TABLE, TABLE)
    int64_t max_branches
    int8_t* too_many             # OUT (n_samples,): 1 where a tree has more branches


cdef struct Paths:
    # Workspace of a walk for path-dependent values. The last two are scratch.
    Level* level          # (depth + 1,)
    int64_t* last         # (n_features,): level of the last edge by each feature, 0 at the start
    double* product       # (depth + 1, n_points): w P
    double* inverse       # (depth + 1, n_points): 1 / f of edges with o = 1
    double* factor        # (depth + 1, n_points): c of edges with o = 1
    double* below         # (depth + 1, n_outputs, n_points): v w P of the leaves below
    double* of_leaf       # (n_points,)
    double* change        # (n_points,)


cdef struct Hybrids:
    # Workspace of a walk for interventional values. The last two are results of a subtree: sums over its
    # leaves of v times the weight of a feature from x, and of one from the background.
    int8_t* side          # (n_features,): where a feature comes from
    Frame* frame          # (n_players,)
    double* sums          # (n_players, 2, n_outputs): results of the first child of each frame
    double* of_x          # (n_outputs,)
    double* of_background  # (n_outputs,)
