"""
Speed and errors, summed up
===========================

Left: how many times as fast as scikit-learn one thread grows and applies forests, from the slowest problem to
the fastest. Right: errors over those of scikit-learn's random forest, all at their defaults, geometric means
over public tables. These are the figures of the first page, which ``python bench/claims.py`` computes from
the records; nothing is timed while this page is built.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

folders = (Path.cwd(), *Path.cwd().parents)
bench = next(a / "bench" for a in folders if (a / "bench/results").is_dir())
sys.path.insert(0, str(bench))
import claims  # noqa: E402

# Named here, because the picture of the first page is made anew when one of them changes.
RECORDS = (
    "claims.json", "grow.json", "targets.json", "predict.json", "tabular_public.json",
    "tabular_public_regression.json",
)  # fmt: skip
found = {claim.name: claims.worst(claims.columns(claim)) for claim in claims.CLAIMS}
print("from", *RECORDS)

# %%
# Each bar begins at the least ratio and ends at the greatest, over data sets, or shapes.

speeds = {
    "growing 100 trees\nof classes": "growing classes",
    "growing trees\nof a target": "growing one target",
    "growing trees of\na target, 255 bins": "growing one target, 255 bins",
    "applying\n100 trees": "applying",
}
errors = {
    "tabular.fit": "errors",
    "CatBoost*": "errors of CatBoost",
    "XGBoost": "errors of XGBoost",
    "extra trees": "errors of extra trees",
    "LightGBM": "errors of LightGBM",
    "histogram boosting": "errors of histogram boosting",
}
plt.rcParams.update({"font.size": 13})
fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
for place, name in enumerate(speeds.values()):
    low, high = min(found[name].values()), max(found[name].values())
    bar = left.barh(place, high - low, 0.5, left=low, color="C0")
    left.bar_label(bar, [f"{low:.1f} to {high:.1f}"], padding=4)
left.axvline(1, color="black", lw=0.8)
left.text(1.1, -0.6, "scikit-learn", va="center")
left.set_yticks(range(len(speeds)), speeds)
left.set_xlim(0, 12)
left.set_ylim(3.6, -1)
left.set_xlabel("times as fast")
for place, name in enumerate(errors.values()):
    mean = claims.performance.mean_of(list(found[name].values()))
    bar = right.barh(place, mean, 0.6, color="C0" if place == 0 else "0.7")
    right.bar_label(bar, [f"{mean:.2f}"], label_type="center", color="white" if place == 0 else "black")
right.axvline(1, color="black", lw=0.8)
right.text(1.01, -0.8, "random forest", va="center")
right.set_yticks(range(len(errors)), errors)
right.set_xticks([0, 0.5, 1])
right.set_xlim(0, 1.45)
right.set_ylim(5.6, -1.3)
of_tables, of_catboost = (len(found[name]) for name in ("errors", "errors of CatBoost"))
right.set_xlabel(f"error / error of a random forest\n*{of_catboost} of {of_tables} tables")
plt.show()
