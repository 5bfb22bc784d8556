"""Rows of `hforest.tabular`."""

from hforest.tabular.cpu import Products

from . import Row, normal


def rows():
    for n in (1, 7):
        yield Row(
            f"tabular.products-{n}", lambda n=n: Products(normal(9, 70)).inputs(normal(n, 9), None),
            paths={"avx2": "tabular.strip_avx2", "avx512": "tabular.strip_avx512"},
        )  # fmt: skip
