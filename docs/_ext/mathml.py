"""Formulas as MathML, which browsers draw without a script or another host."""

import re
from html import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def mathml(latex: str, display: str, node: nodes.Element) -> str:
    """Returns the MathML of a formula; if conversion fails, logs a warning and returns code."""
    try:
        # += and -= as one operator.
        latex = re.sub(r"\\mathrel\{([+-])\}=", r"\\text{ \1= }", latex.replace("\n", " "))
        return convert(latex, display=display)
    except Exception as error:  # the converter raises errors of several classes
        logger.warning("formula %r: %s", latex, error, location=node)
        return f"<code>{escape(latex)}</code>"


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Writes a formula within a line."""
    self.body.append(f'<span class="formula">{mathml(node.astext(), "inline", node)}</span>')
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    r"""Writes formulas on lines of their own; an empty line or ``\qquad`` separates formulas."""
    for line in filter(str.strip, node.astext().split("\n\n")):
        self.body.append('<div class="formula">')
        self.body += [f"<span>{mathml(part, 'block', node)}</span>" for part in line.split(r"\qquad")]
        self.body.append("</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer by the name mathml."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
