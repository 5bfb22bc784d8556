"""Rejection rates of the tests of hforest.stats under independence, at the level 0.05.

    python bench/stats.py --sets 2000 --cells "[!c]* 64 * *" "[!c]* 256 * *" --json bench/results/stats.json
    python bench/stats.py --cells "permutation 64 *" --sets 50            # some cells
    python bench/stats.py --sets 2000 --cells "confounded * 0 *" --json bench/results/stats_conditional.json
    python bench/stats.py --importances --sets 600                        # means and errors of oob_importance
    python bench/stats.py --cells "KMERF *" "* forest*" --sets 300 --json bench/results/stats_published.json

A cell is a test, rows, columns and a statistic, such as "split 256 16 auc". The record has the p-values of
each cell; a run with the same record adds the missing sets. The record also has the rank of the observed
statistic among those drawn, with ties broken at random. Ranks go from 0, the largest, to 99, for
conditional_test to 199. Tests that stop once five statistics are as large have ranks 0 to 5 among the first
five. Ranks are uniform if a test is exact.

permutation, split      labels of two classes, as many of each, beside normal columns
no labels               the same, with split tests of trees that are grown without labels
importance              the same; the first column is compared with 99 permuted copies, or permuted in
                        predictions
conditional             z has four normal columns; each column of x is one of them, or its sine, plus noise;
                        the labels depend on two columns of z alone
randomization           the same, with draws from the true distribution of x given z
linear 0.5, sine, ...   two views of two normal columns. A column of x is this multiple of a column of z, or
                        its sine, plus noise; labels depend on z alone. "covariance" is conditional_test,
                        "view permuted" permutes the rows of x beside those of z (CoMIGHT)
confounded linear 0,    conditional_test of a column x and targets y, which are the same function of d normal
sines 0.5, ...          columns of z, plus noise each; y has this multiple of the noise of x. The function is
                        the sum of the columns or of the sines of their doubles, over the root of d, or the
                        product of two sines
KMERF                   the distance correlation of labels and of the forest grown on them, as published
                        (Panda, Shen and Vogelstein), by chi-square or permutations
one forest              labels permuted against the out-of-bag posteriors of the forest grown on them
two forests 25, 400     trees exchanged with those of a forest on permuted columns (Coleman, Peng and Mentch
                        2022), of as many trees
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from common import cells_named, options_of, parser_of_cells, record, rows_by_cell
from scipy.stats import chisquare

from hforest import growth, stats, tree
from hforest.core import supervised
from hforest.stats.importances import Part, importance_of, means
from hforest.stats.problem import leaf_values

LEVEL = 0.05
N_PERMUTATIONS, MAX_EXCEED = 99, 5
"""A p-value is 0.05 or less where at most four of 99 statistics are as large."""
N_BOOTSTRAP = 199
"""Draws of signs for conditional_test."""
ROWS, COLUMNS = (64, 256, 1024), (1, 16, 256)
POOLED, EACH = (0.046, 0.054), (0.035, 0.065)
"""Limits of the shares of rejected sets: over all cells of a test, and of each."""
GROUPS = 10
"""Groups of ranks, at most, whose frequencies chi-square compares."""
DEPENDENCES = ("linear 0", "linear 0.5", "linear 0.9", "sine")
"""Kinds of dependence between views."""
CONFOUNDED = ("linear 0", "sines 0", "products 0", "linear 0.5", "sines 0.5")
"""Functions of z on which x and y depend, and the dependence of y on x given z."""
BATCH = 50
"""Sets of one cell before the next one's."""


class Cell(NamedTuple):
    """A cell of the simulation."""

    test: str
    n: int
    d: int
    statistic: str

    @property
    def name(self) -> str:
        return f"{self.test} {self.n} {self.d} {self.statistic}"


def cells() -> list[Cell]:
    """Returns all cells, the short ones first."""
    both = [(n, d) for n in ROWS for d in COLUMNS]
    classes = ("information", "auc")
    tests = {
        "split": (*classes, "distance_correlation"),
        "permutation": classes,
        "no labels": (*classes, "distance_correlation"),
        "importance": ("mdi_oob", "ufi", "error"),
    }
    found = [Cell(test, n, d, word) for n, d in both for test, words in tests.items() for word in words]
    found += [Cell("randomization", n, 1, "information") for n in ROWS]
    found += [
        Cell(dependence, n, 2, word)
        for dependence in DEPENDENCES
        for n in (200, 800)
        for word in ("covariance", "view permuted")
    ]
    found += [
        Cell(f"confounded {word}", n, d, "covariance")
        for word in CONFOUNDED
        for n in (100, 200)
        for d in (1, 4, 10)
        if (d > 1 or word != "products 0") and (n == 100 or word.endswith(" 0"))
    ]
    found += [Cell("KMERF", 64, d, word) for d in COLUMNS[:2] for word in ("chi-square", "permutations")]
    found += [
        Cell("one forest", 64, 16, "auc"),
        *(Cell(f"two forests {m}", 64, 16, "mse") for m in (25, 400)),
    ]
    return found + [Cell("conditional", n, d, "covariance") for n, d in both if n < 1024]


def columns_and_labels(
    n: int, d: int, effect: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns normal columns, and labels of two classes that differ in the mean of the first column."""
    x, y = rng.normal(size=(n, d)), rng.permutation(np.arange(n) % 2)
    x[:, 0] += effect * y
    return x, y


def explained(z: np.ndarray, d: int) -> np.ndarray:
    """Returns means of columns given z."""
    column = np.arange(d) % 8
    return np.where(column < 4, z[:, column % 4], np.sin(2 * z[:, column % 4]))


def through_z(n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns columns and labels that depend on z alone."""
    z = rng.normal(size=(n, 4))
    x = explained(z, d) + rng.normal(size=(n, d))
    return x, (z[:, 0] + z[:, 1] + rng.normal(size=n) > 0).astype(int), z


def views(dependence: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns two views x and z, and labels that depend on z alone."""
    z, noise = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    if dependence == "sine":
        x = np.sin(2 * z) + 0.3 * noise
    else:
        rho = float(dependence.removeprefix("linear "))
        x = rho * z + np.sqrt(1 - rho**2) * noise
    return x, (z[:, 0] + z[:, 1] + rng.normal(size=n) > 0).astype(int), z


def confounded(
    form: str, n: int, d: int, effect: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns a column and targets that depend on z, and z of d columns."""
    z, noise = rng.normal(size=(n, d)), rng.normal(size=(n, 2))
    terms = z if form == "linear" else np.sin(2 * z)
    of_z = 2 * terms[:, 0] * terms[:, 1] if form == "products" else terms.sum(axis=1) / np.sqrt(d)
    return of_z + noise[:, 0], of_z + noise[:, 1] + effect * noise[:, 0], z


def permuted(x: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(x)


def sampler(x: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return explained(z, x.shape[1]) + rng.normal(size=x.shape)


def rank(statistic: float, null: np.ndarray, rng: np.random.Generator) -> int:
    """Returns the number of drawn statistics above the observed one; ties are broken at random."""
    equal = abs(null - statistic) <= 1e-12 * max(1.0, abs(statistic))
    return int((~equal & (null > statistic)).sum()) + int(rng.integers(1 + equal.sum()))


def counted(statistic: float, null: list[float]) -> float:
    """Returns the p-value of a statistic among drawn ones."""
    return float(1 + sum(a >= statistic - 1e-12 for a in null)) / (1 + len(null))


def kmerf(cell: Cell, x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """Returns the p-value of the distance correlation of labels and shared leaves of the forest on them."""
    rng = np.random.default_rng(seed)
    of_x = 1 - tree.proximity(growth.grow(x, y, 100, rng=seed), x).toarray()
    of_y = abs(y[:, None] - y)
    of = stats.distance_correlation(of_x, of_y)
    if cell.statistic == "chi-square":
        return of.p_value
    orders = (rng.permutation(len(y)) for _ in range(N_PERMUTATIONS))
    return counted(
        of.statistic, [stats.distance_correlation(of_x, of_y[np.ix_(a, a)]).statistic for a in orders]
    )


def one_forest(cell: Cell, x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """Returns the p-value of permuted labels against posteriors of the forest grown on their first order."""
    counts = stats.honest_counts(y, 100, draw="bootstrap", rng=seed)
    forest = growth.grow(x, y, 100, bootstrap=counts.structure, rng=seed)
    p, rng = stats.posterior(forest, x, y, counts).p, np.random.default_rng(seed)
    null = [stats.auc(p, rng.permutation(y), missing="omit") for _ in range(N_PERMUTATIONS)]
    return counted(stats.auc(p, y, missing="omit"), null)


def two_forests(cell: Cell, x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """Returns the share of differences of errors, with exchanged trees, that are as large."""
    rng, n_trees = np.random.default_rng(seed), int(cell.test.split()[-1])
    new, labels = columns_and_labels(cell.n, cell.d, 0.0, rng)
    votes = []
    for columns in (x, rng.permutation(x)):
        counts = np.zeros((n_trees, cell.n), np.int32)
        rows = np.argsort(rng.random(counts.shape), axis=1)[:, : round(cell.n**0.6)]
        np.put_along_axis(counts, rows, 1, axis=1)
        forest = growth.grow(columns, y, n_trees, bootstrap=counts, rng=rng)
        votes.append(leaf_values(forest, tree.apply(forest, new))[:, :, 1])
    of_trees = np.concatenate(votes, axis=1)

    def difference(first: np.ndarray) -> float:
        errors = [((of_trees[:, some].mean(axis=1) - labels) ** 2).mean() for some in (first, ~first)]
        return float(errors[1] - errors[0])

    first = np.arange(2 * n_trees) < n_trees
    return counted(difference(first), [difference(rng.permutation(first)) for _ in range(N_PERMUTATIONS)])


PUBLISHED = {"KMERF": kmerf, "one forest": one_forest, "two forests": two_forests}
"""Tests that do not keep their level."""


def outcome(cell: Cell, number: int, effect: float = 0.0) -> tuple[float, int]:
    """Returns the p-value of one data set, and the rank of its statistic."""
    kind, *words = cell.test.split()
    key = [number, cell.n, cell.d]
    if kind == "confounded":
        key.append(2 + CONFOUNDED.index(" ".join(words)))
    rng = np.random.default_rng(key)
    coin = np.random.default_rng([number, cell.n, cell.d, 1])
    seed = int(rng.integers(2**62))
    settings: dict[str, Any] = {"statistic": cell.statistic, "n_permutations": N_PERMUTATIONS, "rng": seed}
    if cell.statistic == "covariance":
        if kind == "confounded":
            x, y, z = confounded(words[0], cell.n, cell.d, float(words[1]), rng)
        elif cell.test in DEPENDENCES:
            x, y, z = views(cell.test, cell.n, rng)
        else:
            x, y, z = through_z(cell.n, cell.d, rng)
        task: Any = "regression" if kind == "confounded" else "classification"
        p = stats.conditional_test(x, y, z, n_bootstrap=N_BOOTSTRAP, task=task, rng=seed).p_value
        return p, round(p * (1 + N_BOOTSTRAP)) - 1
    if cell.test == "randomization" or cell.test in DEPENDENCES:
        settings["statistic"] = "information"
        of_views = cell.test in DEPENDENCES
        result = stats.conditional_randomization_test(
            *(views(cell.test, cell.n, rng) if of_views else through_z(cell.n, cell.d, rng)),
            sampler=permuted if of_views else sampler, max_exceed=MAX_EXCEED, **settings
        )  # fmt: skip
        return result.p_value, rank(result.statistic, result.null[:MAX_EXCEED], coin)
    x, y = columns_and_labels(cell.n, cell.d, effect, rng)
    for name, published in PUBLISHED.items():
        if cell.test.startswith(name):
            p = published(cell, x, y, seed)
            return p, min(N_PERMUTATIONS, int(max(0.0, p * (1 + N_PERMUTATIONS) - 0.5)))
    if cell.test == "importance":
        by: Any = cell.statistic
        of = stats.importance_test(x, y, columns=0, by=by, n_copies=N_PERMUTATIONS, rng=seed)
        return float(of.p_value[0]), rank(float(of.importance[0]), of.null[0], coin)
    if cell.test == "permutation":
        result = stats.permutation_test(x, y, max_exceed=MAX_EXCEED, **settings)
        return result.p_value, rank(result.statistic, result.null[:MAX_EXCEED], coin)
    share = 0.5 if cell.test == "split" else 0.0
    result = stats.split_test(x, y, structure_share=share, **settings)
    return result.p_value, rank(result.statistic, result.null, coin)


def uniform(ranks: list[tuple[int, int]]) -> float:
    """Returns the p-value of a chi-square test of uniform ranks, each in 0 to n with n beside it."""
    if not ranks:
        return float("nan")  # a record of an earlier version
    number = np.array(ranks)
    n_groups = min(GROUPS, 1 + int(number[:, 1].min()))
    group = number[:, 0] * n_groups // (1 + number[:, 1])
    return float(chisquare(np.bincount(group, minlength=n_groups)).pvalue)


def drawn(test: str, statistic: str) -> int:
    """Returns the minimum number of statistics that a test draws."""
    if statistic == "covariance":
        return N_BOOTSTRAP if statistic == "covariance" else 0
    stops = test in ("permutation", "randomization") or statistic == "view permuted"
    return MAX_EXCEED if stops else N_PERMUTATIONS


def rejected(p: np.ndarray) -> str:
    """Returns the share of sets with a p-value of 0.05 or less, and its standard error."""
    share = float((p <= LEVEL).mean())
    return f"{share:.3f} | {np.sqrt(share * (1 - share) / len(p)):.3f}"


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yields lines of Markdown: of each cell, and of all cells of each test and statistic."""
    yield "| test | rows | columns | statistic | sets | rejected | standard error |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        p = np.array(row["p"])
        name = (row["test"], str(row["n"]), str(row["d"]), row["statistic"])
        yield f"| {' | '.join(name)} | {len(p)} | {rejected(p)} |"
    yield ""
    yield (
        "| test | statistic | sets | rejected | standard error | from {} to {} | cells from {} to {} "
        "| ranks uniform, p |".format(*POOLED, *EACH)
    )
    yield "|---|---|---|---|---|---|---|---|"
    for test, statistic in dict.fromkeys((row["test"], row["statistic"]) for row in rows):
        of = [row for row in rows if (row["test"], row["statistic"]) == (test, statistic)]
        p = np.concatenate([row["p"] for row in of])
        shares = [float((np.array(row["p"]) <= LEVEL).mean()) for row in of]
        inside = sum(EACH[0] <= share <= EACH[1] for share in shares)
        within = "yes" if POOLED[0] <= (p <= LEVEL).mean() <= POOLED[1] else "no"
        by_chance = uniform([(r, drawn(test, statistic)) for row in of for r in row.get("rank", [])])
        yield (
            f"| {test} | {statistic} | {len(p)} | {rejected(p)} | {within} | {inside} of {len(of)} "
            f"| {by_chance:.3f} |"
        )


def confounded_table(rows: list[dict[str, Any]]) -> str:
    """Returns the table of the page: shares of rejected sets of "confounded", by rows and columns."""
    p = {
        (row["test"].removeprefix("confounded "), row["n"], row["d"]): np.array(row["p"])
        for row in rows
        if row["test"].startswith("confounded ")
    }
    sizes = sorted({(n, d) for _, n, d in p})
    lines = [
        f"| function, dependence | {' | '.join(f'{n} rows, {d} in z' for n, d in sizes)} |",
        f"|{'---|' * (1 + len(sizes))}",
    ]
    for test in CONFOUNDED:
        cells = [
            rejected(p[test, *size]).replace(" | ", " ± ") if (test, *size) in p else "–" for size in sizes
        ]
        lines.append(f"| {test.replace(' ', ', ')} | {' | '.join(cells)} |")
    return "\n".join(lines)


CATEGORIES = (2, 4, 10, 100, 1000)


def as_published(inside: Part, outside: Part) -> np.ndarray:
    """Returns the contribution of a split to MDI-oob (Li et al. 2019), with sides weighted by in-bag rows."""
    whole, left, right = (
        (of[:, :1] * means(of) * means(within))[:, 1:].sum(axis=1)
        for within, of in zip(inside[:3], outside[:3], strict=True)
    )
    return (left + right - whole) / np.maximum(outside.root[:, 0], 1)


def importances(n_sets: int) -> Iterator[str]:
    """Returns lines of Markdown: out-of-bag importances of columns of categories independent of the labels.

    A further normal column is independent of the labels, or its sign agrees with three quarters of them.
    """
    n, n_trees = 200, 50
    yield f"| normal column | importance | | {' | '.join(map(str, CATEGORIES))} |"
    yield "|---|---|---|" + "---|" * len(CATEGORIES)
    for tells in (False, True):
        made: dict[str, list[Any]] = {"mdi_oob, published": [], "mdi_oob": [], "ufi": []}
        for number in range(n_sets):
            rng = np.random.default_rng(1000 + number)
            x = np.column_stack([rng.integers(0, k, n) for k in CATEGORIES] + [rng.normal(size=n)])
            y = (x[:, -1] > 0) ^ (rng.random(n) < 0.25) if tells else rng.integers(0, 2, n)
            counts = growth.bootstrap_counts(n, n_trees, rng=number)
            forest = growth.grow(x, y, n_trees, bootstrap=counts, n_classes=2, rng=number)
            for by in ("mdi_oob", "ufi"):
                made[by].append(stats.oob_importance(forest, x, y, counts, by=by, n_classes=2))
            goal = supervised.target(y, n, "classification", 2)
            published = importance_of(forest, tree.apply(forest, x), goal, counts, as_published)
            made["mdi_oob, published"].append(published)
        for by, results in made.items():
            mean, error = np.stack(results, axis=1)[:, :, : len(CATEGORIES)]
            deviation = mean.std(axis=0, ddof=1)
            lines = {
                "mean, in its standard errors": mean.mean(axis=0) / deviation * np.sqrt(n_sets),
                "deviation, 1e-4": 1e4 * deviation,
                "mean of the errors, 1e-4": 1e4 * error.mean(axis=0),
                "deviation of mean / error": (mean / error).std(axis=0),
            }
            for what, numbers in lines.items():
                kind = "tells" if tells else "noise"
                yield f"| {kind} | {by} | {what} | {' | '.join(f'{a:.1f}' for a in numbers)} |"


def measure(
    chosen: list[Cell],
    n_sets: int,
    rows: dict[str, dict[str, Any]],
    save: Callable[[], None],
) -> None:
    """Adds p-values to the rows of the cells until each has as many as there are sets."""
    for done in range(0, n_sets, BATCH):
        for cell in chosen:
            row = rows.setdefault(cell.name, {**cell._asdict(), "p": []})
            missing = range(len(row["p"]), min(done + BATCH, n_sets))
            made = [outcome(cell, number) for number in missing]
            row["p"] += [p for p, _ in made]
            # A record of an earlier version has fewer ranks than p-values.
            row.setdefault("rank", []).extend(r for _, r in made)
            if missing:
                save()


def main() -> None:
    parser = parser_of_cells(__doc__, 200)
    parser.add_argument(
        "--importances", action="store_true", help="print only means and errors of importances"
    )
    options = options_of(parser, "--cells 'split 64 16 auc' 'permutation 64 1 *' --sets 2")
    if options.importances:
        print(*importances(options.sets), sep="\n")
        return
    chosen = cells_named(parser, cells(), options.cells)
    rows = rows_by_cell(options.json, Cell)

    def save() -> None:
        if options.json:
            known = [rows[cell.name] for cell in cells() if cell.name in rows]
            record(options.json, known, level=LEVEL, n_permutations=N_PERMUTATIONS, max_exceed=MAX_EXCEED)

    try:
        measure(chosen, options.sets, rows, save)
    except KeyboardInterrupt:
        print("interrupted; the sets so far:")
    print(*table([rows[cell.name] for cell in chosen if rows.get(cell.name, {"p": []})["p"]]), sep="\n")


if __name__ == "__main__":
    main()
