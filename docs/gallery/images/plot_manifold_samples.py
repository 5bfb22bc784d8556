"""
Errors with few samples: patches and pixels
===========================================

MORF (Perry et al. 2019) splits images by sums over patches. It learns to classify images of bars from fewer
samples than a forest on single pixels, or on sparse sums of any pixels (SPORF).
"""

import matplotlib.pyplot as plt

import hforest
from hforest import demo, project, tree

x_test, y_test = demo.simulate_bars(1000, rng=99)
sizes = (20, 50, 100, 200, 400)
kinds = {
    "pixels": None,
    "sparse sums (SPORF)": project.sparse_distribution(28 * 28),
    "patches (MORF)": project.patch_distribution((28, 28), patch_max=4),
}
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, projections in kinds.items():
    errors = []
    for n in sizes:
        forest = hforest.grow(*demo.simulate_bars(n, rng=1), 50, projections=projections, rng=0)
        errors.append(100 * float((tree.predict(forest, x_test).argmax(axis=1) != y_test).mean()))
    ax.plot(sizes, errors, marker="o", label=name)
ax.set(
    xlabel="samples to grow on",
    ylabel="error on 1000 others, %",
    xscale="log",
    xticks=sizes,
    xticklabels=sizes,
)
ax.minorticks_off()
ax.legend()
plt.show()
