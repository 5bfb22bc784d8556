"""The operators' library `hforest`: definitions, kernels for CPU and CUDA, and the arrays of tensors."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from . import cuda

Kind = Literal["tree", "fern"]
MarginName = Literal["column", "projection"]
Aggregate = Literal["sum", "mean"] | None

LIBRARY = torch.library.Library("hforest", "DEF")
"""Holds every operator `torch.ops.hforest.*` as long as the process runs."""

HALF = (torch.float16, torch.bfloat16)
_QUANTISED = (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4)
_NO_ARRAY, _DENSE = {*HALF, *_QUANTISED}, torch.strided
AUTOCAST = ("cpu", "cuda")
_PLAIN = (Tensor, torch.nn.Parameter)
# Functions that count active dispatch modes and function transforms. A PyTorch without them goes through the
# dispatcher in every call, which is slower and right.
_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
_included = getattr(torch._C, "_dispatch_tls_is_dispatch_key_included", None)
_parse = getattr(torch._C, "_dispatch_key_parse", None)
_BATCH = _parse("VmapMode") if _included and _parse else None


# The decorator of PyTorch's own optimisers: torch.compiler.disable, whose import of the compiler (a second or
# more) waits for the first call.
disable_compiler = getattr(torch, "_disable_dynamo", torch.compiler.disable)


class Layer(nn.Module):
    """Base class of the modules; type checkers see that they return a tensor.

    Sizes of the input that shapes of tensors do not tell are stored in the metadata of a state, beside
    PyTorch's version of the module: its keys are the names of the tensors.
    """

    _index = ""
    """Name of the tensor of columns, if there is one."""

    if TYPE_CHECKING:

        def __call__(self, *inputs: Tensor | None) -> Tensor: ...

    def _input(self) -> tuple[str, int]:
        # Sizes of the input as text, and the number of columns that the tensor of columns may refer to.
        return "", 0

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        metadata = getattr(destination, "_metadata", {}).get(prefix[:-1])
        if metadata is not None and self._index:
            metadata["input"] = self._input()[0]

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        columns, (sizes, n_columns) = state_dict.get(prefix + self._index), self._input()
        stored, wrong = local_metadata.get("input"), ""
        if isinstance(stored, str) and stored != sizes:
            wrong = f"that of {stored}"
        elif type(columns) in _PLAIN and not columns.is_floating_point() and columns.numel():
            low, high = (0, 0) if columns.is_meta else (int(columns.min()), int(columns.max()))
            if not 0 <= low <= high < n_columns:
                wrong = f"columns {low} to {high}"
        if wrong:
            error_msgs.append(
                f"size mismatch for {prefix}{self._index}: expected the state of a layer with {sizes}, got "
                f"{wrong}; load it into a layer of the sizes with which it was saved"
            )
        else:
            super()._load_from_state_dict(
                state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
            )


def in_graph(layer: nn.Module, *inputs: Any) -> Any:
    """Returns the call of a layer as one node of the graph that `torch.fx` traces.

    A layer that is traced alone becomes the submodule `layer` of the graph's module.
    """
    tracer, path = inputs[0].tracer, "layer"
    if tracer.root is layer:
        tracer.root = nn.ModuleDict({path: layer})
    else:
        path = tracer.path_of_module(layer)
    return tracer.create_proxy("call_module", path, inputs, {})


def feature_axis(x: Tensor, name: str, size: int, dim: int = -1) -> int:
    """Returns the axis of the features of an input and checks its size: `dim`, or that of a single sample."""
    axis = dim if x.dim() > 1 else -1
    if x.dim() < 1 or x.shape[axis] != size:
        before, after = ("n_samples, ", ", ...") if dim == 1 else ("..., ", "")
        place = "axis 1, or one sample as a vector" if dim == 1 else "the last axis"
        raise ValueError(
            f"x: expected shape ({before}{name}{after}) = ({before}{size}{after}), got {tuple(x.shape)}; "
            f"pass samples with {size} features in {place}"
        )
    return axis


def check_dim(dim: Any) -> int:
    """Returns the axis of the features as a module takes it: 1 or -1."""
    if dim not in (1, -1):
        raise ValueError(
            f"dim: expected 1 or -1, got {dim!r}; pass 1 for (n, features, *spatial), -1 for (*, features)"
        )
    return int(dim)


def check_integer(name: str, value: Any, least: int | None = None) -> None:
    """Checks the type of a size of a module, and that it is not below `least`."""
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}; pass an integer such as 1")
    if least is not None and value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}; choose a larger number")


def _forward_mode() -> bool:
    return getattr(forward_ad, "_current_level", 0) >= 0


def grads_batched() -> bool:
    """Returns whether a backward pass has a batch of gradients: `is_grads_batched` of `torch.autograd.grad`,
    `vectorize` of `torch.autograd.functional.jacobian`. PyTorch then calls the operators for each of them.
    """
    return _BATCH is not None and _included is not None and _included(_BATCH)


def untraced() -> bool:
    """Returns whether nothing traces or transforms a call: compilation, export, fake tensors, dispatch modes
    (counters of operators, tracers), function transforms (`torch.func`) and forward-mode derivatives.
    """
    if torch.compiler.is_compiling() or _modes is None or _transforms is None or _forward_mode():
        return False
    if grads_batched():
        return False
    return not _modes() and _transforms() is None and not torch.jit.is_tracing()


def eager(*tensors: Tensor) -> bool:
    """Returns whether a call may skip the dispatcher: dense CPU tensors, no half types, `untraced`."""
    for t in tensors:
        if type(t) not in _PLAIN or not t.is_cpu or t.layout is not _DENSE or t.dtype in _NO_ARRAY:
            return False
    return untraced()


def check(**tensors: Tensor | None) -> None:
    """Checks that arguments are dense tensors on one device, without tangents or integer gradients.

    Operators have no kernels for sparse or quantised tensors or for layouts of other libraries.
    """
    first_name, first = "", None
    for name, t in tensors.items():
        if t is None and name == "index":
            continue
        if not isinstance(t, Tensor):
            raise TypeError(
                f"{name}: expected a torch.Tensor, got {type(t).__name__}; "
                f"convert it with torch.as_tensor({name})"
            )
        if t.layout is not _DENSE or t.is_quantized:
            remedy = "dequantize" if t.is_quantized else "to_dense"
            raise TypeError(
                f"{name}: expected a dense tensor of a NumPy dtype, got {_dtype(t)} with layout {t.layout}; "
                f"pass {name}.{remedy}()"
            )
        if first is None:
            first_name, first = name, t
        elif t.device != first.device:
            raise TypeError(
                f"{name}: expected a tensor on {first.device} like {first_name}, got a tensor on "
                f"{t.device}; move it with {name}.to({first_name}.device)"
            )
        if (
            not torch.compiler.is_compiling()
            and _forward_mode()
            and t.is_floating_point()
            and forward_ad.unpack_dual(t).tangent is not None
        ):
            raise RuntimeError(
                f"{name}: expected no forward-mode tangent, got one; differentiate by backward"
            )
        if name in ("index", "y") and t.requires_grad:
            raise TypeError(
                f"{name}: expected integers without a gradient, got requires_grad=True; "
                "pass a buffer of integers"
            )


def same_dtype(name: str, t: Tensor, like: str, learned: Tensor) -> None:
    """Checks that an input has the dtype of the layer's tensors. Half types are checked later."""
    if t.dtype == learned.dtype or t.dtype in HALF or learned.dtype in HALF:
        return
    names = {torch.float32: "float", torch.float64: "double"}
    remedy = f"pass {name}.{names.get(learned.dtype, 'float')}()"
    if t.dtype in names:
        remedy += f", or convert the layer with layer.{names[t.dtype]}()"
    raise TypeError(f"{name}: expected dtype {_dtype(learned)} like {like}, got {_dtype(t)}; {remedy}")


def inside_autocast(t: Tensor) -> bool:
    """Returns whether `torch.autocast` casts for the device of a tensor."""
    return t.device.type in AUTOCAST and torch.is_autocast_enabled(t.device.type)


def full_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Returns tensors as they are, or inside `torch.autocast` those of half types cast to float32."""
    if not inside_autocast(tensors[0]):
        return tensors
    return tuple(t.float() if t.dtype in HALF else t for t in tensors)


def array(name: str, t: Tensor) -> np.ndarray:
    """Returns a CPU tensor as a C-contiguous array, with a copy only if it is not contiguous."""
    if t.dtype in HALF:
        raise TypeError(
            f"{name}: expected dtype float32 or float64, got {_dtype(t)}; convert it with {name}.float(), "
            "a layer with layer.float(), or run inside torch.autocast"
        )
    try:
        return cuda.host_array(t.contiguous())
    except (TypeError, RuntimeError, BufferError) as error:
        raise TypeError(
            f"{name}: expected a dense tensor of a NumPy dtype, got {_dtype(t)} with layout {t.layout} "
            f"({error}); pass {name}.to_dense()"
        ) from None


def _dtype(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


def transformed() -> bool:
    """Returns whether a transform of `torch.func` is active: a gradient, or `vmap`."""
    if torch.compiler.is_compiling() or _transforms is None:
        return False
    level = _transforms()
    return level is not None and level.key().name in ("Grad", "Vmap")


class Operator:
    """Operator `torch.ops.hforest.<name>`; calls with plain CPU tensors skip the dispatcher.

    Parameters
    ----------
    name, schema : str
        Name, and arguments and results as a PyTorch schema.
    kernel : function
        Takes NumPy arrays (CuPy arrays on CUDA) under the schema's names and returns a new array or a tuple
        of new arrays.
    fake : function
        Takes fake tensors and returns empty ones with the shapes and dtypes of the results.
    setup, backward : functions, optional
        Functions for `torch.library.register_autograd`: the gradient with respect to the first result.
        Without them a backward pass through the operator is an error.
    of_samples : int
        The first arguments whose first axis, like that of all results, is that of independent samples. `vmap`
        over these alone is one call for all of them, over others a call for each element.
    """

    def __init__(
        self,
        name: str,
        schema: str,
        kernel: Callable[..., Any],
        fake: Callable[..., Any],
        setup: Callable[..., None] | None = None,
        backward: Callable[..., Any] | None = None,
        of_samples: int = 0,
    ) -> None:
        self._kernel, self._names = kernel, list(inspect.signature(kernel).parameters)
        self._function = None if setup is None else _function(self.run, setup, backward)
        LIBRARY.define(name + schema)
        LIBRARY.impl(name, self.run, "CPU")
        LIBRARY.impl(name, lambda *arguments: cuda.call(kernel, arguments), "CUDA")
        torch.library.register_fake(f"hforest::{name}", fake, lib=LIBRARY)
        self.overload = getattr(torch.ops.hforest, name).default
        self._transform = _transform(self.overload, setup, backward or no_second_derivative, of_samples)
        for device in AUTOCAST:
            LIBRARY.impl(name, _autocast(self.overload, device), f"Autocast{device.upper()}")
        torch.library.register_autograd(
            f"hforest::{name}", backward or no_second_derivative, setup_context=setup, lib=LIBRARY
        )

    def run(self, *arguments: Any) -> Any:
        """Returns the results for CPU tensors."""
        named = zip(self._names, arguments, strict=False)
        results = self._kernel(*(array(k, a) if isinstance(a, Tensor) else a for k, a in named))
        return (
            tuple(map(torch.from_numpy, results)) if isinstance(results, tuple) else torch.from_numpy(results)
        )

    def __call__(self, *arguments: Any) -> Any:
        """Returns the results; only the first one of an operator with a gradient."""
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        plain, learns = eager(*tensors), torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if plain and learns and self._function is not None:
            return self._function.apply(*arguments)
        results = (self.run if plain and not learns else self.results)(*arguments)
        return results[0] if self._function is not None and isinstance(results, tuple) else results

    def results(self, *arguments: Any) -> Any:
        """Returns all results through PyTorch's dispatcher, or as a transform of `torch.func` has them.

        A pass with create_graph=True meets the operator here, which refuses to be differentiated.
        """
        return (self._transform.apply if transformed() else self.overload)(*arguments)


def _function(run: Callable[..., Any], setup: Callable[..., None], pull: Any) -> Any:
    # The operator as a function of autograd, for plain CPU tensors.
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Tensor:
            results = run(*arguments)
            setup(ctx, arguments, results)
            return results[0] if isinstance(results, tuple) else results

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return pull(ctx, grad)

    return Function


def _transform(run: Any, setup: Callable[..., None] | None, pull: Any, of_samples: int) -> Any:
    # The operator as a function of autograd that transforms of torch.func take.
    class Transform(torch.autograd.Function):
        @staticmethod
        def forward(*arguments: Any) -> Any:
            return run(*arguments)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            results = output if isinstance(output, tuple) else (output,)
            ctx.mark_non_differentiable(*(t for t in results if not t.is_floating_point()))
            if setup is not None:
                setup(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return pull(ctx, *grads)

        @staticmethod
        def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
            n, first = info.batch_size, range(of_samples)

            def apart(t: Tensor) -> Tensor:
                return t.unflatten(0, (n, -1)) if len(t) else t.expand(n, *t.shape)

            batched = {i: arguments[i].movedim(d, 0) for i, d in enumerate(in_dims) if isinstance(d, int)}
            if all(i in first for i in batched):
                every = [batched.get(i, arguments[i]) for i in first]
                rows = [
                    (t if i in batched else t.expand(n, *t.shape)).flatten(0, 1) for i, t in enumerate(every)
                ]
                results = Transform.apply(*rows, *arguments[of_samples:])
                if isinstance(results, tuple):
                    return tuple(map(apart, results)), (0,) * len(results)
                return apart(results), 0
            each = [
                Transform.apply(*(batched[i][k] if i in batched else a for i, a in enumerate(arguments)))
                for k in range(n)
            ]
            if isinstance(each[0], tuple):
                return tuple(torch.stack(parts) for parts in zip(*each, strict=True)), (0,) * len(each[0])
            return torch.stack(each), 0

    return Transform


def _autocast(overload: Any, device: str) -> Callable[..., Any]:
    """Returns the operator's kernel inside `torch.autocast`: half types are cast to float32."""

    def kernel(*arguments: Any) -> Any:
        cast = [a.float() if isinstance(a, Tensor) and a.dtype in HALF else a for a in arguments]
        with torch.autocast(device, enabled=False):
            return overload(*cast)

    return kernel


def no_second_derivative(ctx: Any, *_: Any) -> Any:
    """Raises the error for a backward pass through an operator that computes gradients."""
    raise RuntimeError(
        "hforest.torch: expected at most first derivatives, got a second derivative; call backward once"
    )
