"""bench/compiled.py: functions that PyTorch would run uncompiled, or compile twice, raise an error."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def compiled(script):
    """`compiled` with a backend that compiles no C++; PyTorch's settings are restored."""
    config = torch._dynamo.config
    with config.patch(error_on_recompile=config.error_on_recompile, suppress_errors=config.suppress_errors):
        torch.compiler.reset()
        function = script("compiled").compiled
        yield lambda *args, **kwargs: function(*args, backend="eager", **kwargs)
    torch.compiler.reset()


def scaled(n):
    """Returns a separate function for each n, with the same code, like a peer's functions for each shape."""

    def function(x):
        return x * n

    return function


def test_one_shape_is_compiled_once(compiled):
    function = compiled(scaled(2))
    for _ in range(3):
        assert function(torch.ones(4)).tolist() == [2] * 4


def test_another_shape_is_an_error(compiled):
    function = compiled(scaled(2))
    function(torch.ones(4))
    with pytest.raises(torch._dynamo.exc.RecompileError):
        function(torch.ones(5))


def test_another_gradient_mode_is_an_error(compiled):
    function = compiled(scaled(2))
    function(torch.ones(4))
    with pytest.raises(torch._dynamo.exc.RecompileError):
        function(torch.ones(4, requires_grad=True))


def test_functions_of_one_definition_are_compiled_apart(compiled):
    for n, learns in ((2, False), (3, True)):
        assert compiled(scaled(n))(torch.ones(4, requires_grad=learns)).tolist() == [n] * 4


def test_a_graph_break_is_an_error(compiled):
    def function(x):
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(function)(torch.ones(4))
    torch.compiler.reset()

    def between(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    with pytest.raises(RuntimeError, match="expected one graph compiled by torch.compile, got 2"):
        compiled(between, fullgraph=False)(torch.ones(4))


def test_running_without_compiling_is_an_error(compiled):
    with (
        torch.compiler.set_stance("force_eager"),
        pytest.raises(RuntimeError, match="expected one graph compiled by torch.compile, got 0"),
    ):
        compiled(scaled(3))(torch.ones(4))


def test_a_compiler_that_fails_is_an_error(script):
    def broken(graph, inputs):
        raise ValueError("no compiler")

    config = torch._dynamo.config
    with config.patch(suppress_errors=True, error_on_recompile=False):
        torch.compiler.reset()
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no compiler"):
            script("compiled").compiled(scaled(5), backend=broken)(torch.ones(4))
    torch.compiler.reset()


def test_without_the_check_pytorch_runs_later_shapes_uncompiled():
    """The check guards against this: over the limit PyTorch does not compile, and raises nothing."""
    torch.compiler.reset()
    count = 0

    def counting(graph, inputs):
        nonlocal count
        count += 1
        return graph.forward

    limit = torch._dynamo.config.recompile_limit
    for n in range(1, limit + 4):
        torch.compile(scaled(n), dynamic=False, backend=counting)(torch.ones(n + 1))
    torch.compiler.reset()
    assert count == limit
