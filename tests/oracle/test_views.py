"""Views against NumPy: random shapes, random chains of indexes (as items and as text), transposes, reshapes, squeezes, splits.
Shape, strides, offset, contiguity, error or none, and the elements that the byte runs cover must be NumPy's."""

import ast
import random
import re

import numpy

import heftlib
from heftlib import HeftError, View

BASE = numpy.arange(7**7, dtype=numpy.int64)
NUMBERS = list(range(-9, 10)) * 3 + [2**31, -2**31, 2**62, -2**62, 2**63 - 1, -2**63, 2**64, 10**30, -10**30]


def shape_of(rng):
    rank = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7))
    return tuple(rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7) if rank < 6 else (1, 1, 2, 2, 3)) for _ in range(rank))


def take(array, items):
    """array[items]; an array of no dims, where NumPy would make a scalar."""
    return array[items if any(item is Ellipsis for item in items) else items + (Ellipsis,)]


def array_of(shape):
    return BASE[:int(numpy.prod(shape, dtype=numpy.int64))].reshape(shape)


def equal(view, array, what):
    """The view has NumPy's numbers."""
    assert view.shape == array.shape, (what, view.shape, array.shape)
    offset = (array.__array_interface__["data"][0] - BASE.__array_interface__["data"][0]) // 8
    strides = tuple(stride // 8 for stride in array.strides)
    assert view.offset == offset, (what, view.offset, offset)
    assert view.strides == strides, (what, view.strides, strides)
    assert view.nelems == array.size and view.nbytes == array.size
    assert view.contiguous == array.flags.c_contiguous, (what, view.strides)


def covers(view, array, what):
    """The runs of the view, of one-byte elements, are its elements in order, and none touches the next."""
    runs = view.runs()
    assert [byte for offset, length in runs for byte in range(offset, offset + length)] == array.ravel().tolist(), what
    assert all(offset + length != following for (offset, length), (following, _) in zip(runs, runs[1:])), (what, runs)


# ---- indexes --------------------------------------------------------------------------------------------------------


def item_of(rng, dim):
    def bound(numbers=NUMBERS):
        return None if rng.random() < 0.3 else rng.choice(numbers) if rng.random() < 0.3 else rng.randrange(-dim - 2, dim + 3)
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(NUMBERS) if rng.random() < 0.05 else rng.randrange(-dim - (rng.random() < 0.1), dim + 1 or 1)
    if kind < 0.9:
        return slice(bound(), bound(), None if rng.random() < 0.5 else bound(range(-9, 10)))
    return None if kind < 0.96 else Ellipsis


def items_of(rng, array):
    count = rng.randrange(array.ndim + 2) if rng.random() < 0.9 else rng.randrange(array.ndim + 5)
    return tuple(item_of(rng, array.shape[min(i, array.ndim - 1)] if array.ndim else 1) for i in range(count))


def text_of(rng, items):
    def blank():
        return rng.choice(("", "", "", " ", "  ", "\t"))

    def number(value):
        if value is None:
            return rng.choice(("", "", "None"))
        return (rng.choice(("", "+")) if value >= 0 else "-" + blank()) + str(abs(value))

    def text(item):
        if item is None:
            return rng.choice(("None", "newaxis"))
        if item is Ellipsis:
            return rng.choice(("...", "Ellipsis"))
        if isinstance(item, slice):
            parts = [number(item.start), number(item.stop)]
            if item.step is not None or rng.random() < 0.3:
                parts.append(number(item.step))
            return (blank() + ":" + blank()).join(parts)
        return number(item)

    if not items:
        return rng.choice(("", "()", " ", "( )"))
    return ",".join(blank() + text(item) + blank() for item in items) + rng.choice(("", "", "", ","))


def outcome(function):
    """The result, or the class of the refusal."""
    try:
        return function()
    except (IndexError, ValueError, HeftError) as error:
        return error


def compare(mine, theirs, what):
    """Both refused (None), or both made something equal."""
    refused = isinstance(theirs, Exception)
    assert isinstance(mine, HeftError) == refused, (what, mine, theirs)
    if refused:
        assert mine.status in ("invalid-argument", "unsupported", "limit"), (what, mine)
        return None
    equal(mine, theirs, what)
    return mine, theirs


# ---- one step of a chain ------------------------------------------------------------------------------------------


def step_index(rng, view, array):
    items = items_of(rng, array)
    return compare(outcome(lambda: view.index(*items)), outcome(lambda: take(array, items)), items)


def step_text(rng, view, array):
    items = items_of(rng, array)
    text = text_of(rng, items)
    mine = outcome(lambda: view.index_text(text))
    if isinstance(mine, HeftError):
        assert mine.offset is None or mine.offset <= len(text)
    return compare(mine, outcome(lambda: take(array, items)), text)


def step_permute(rng, view, array):
    if rng.random() < 0.3:
        return compare(view.permute(), array.T, "transpose")
    axes = list(range(array.ndim))
    rng.shuffle(axes)
    axes = [axis - rng.choice((0, array.ndim)) for axis in axes]
    if axes and rng.random() < 0.1:
        axes[0] = rng.randrange(-array.ndim - 1, array.ndim + 1)
    return compare(outcome(lambda: view.permute(axes)), outcome(lambda: array.transpose(axes)), axes)


def step_transpose(rng, view, array):
    a, b = (rng.randrange(-array.ndim - 1, array.ndim + 1) for _ in range(2))
    return compare(outcome(lambda: view.transpose(a, b)), outcome(lambda: array.swapaxes(a, b)), (a, b))


def factors(rng, size):
    """A random shape of `size` elements."""
    if size == 0:
        return [rng.choice((0, 0, 1, 2, 3)) for _ in range(rng.randrange(1, 5))]
    dims = []
    while size > 1 and rng.random() < 0.9:
        dim = rng.choice([d for d in range(1, min(size, 40) + 1) if size % d == 0])
        dims.append(dim)
        size //= dim
    dims.append(size)
    while rng.random() < 0.4:
        dims.insert(rng.randrange(len(dims) + 1), 1)
    if dims == [1] and rng.random() < 0.5:
        return []
    return dims


def step_reshape(rng, view, array):
    shape = factors(rng, array.size)
    if shape and rng.random() < 0.3:
        shape[rng.randrange(len(shape))] = -1
    if shape and rng.random() < 0.1:
        big = (2**62, 2**63 - 1) if array.size else ()  # without elements heft takes any dims, NumPy has a limit
        shape[rng.randrange(len(shape))] = rng.choice((0, 2, 5) + big)
    mine = outcome(lambda: view.reshape(shape))
    return compare(mine, outcome(lambda: numpy.reshape(array, shape, copy=False)), (array.shape, array.strides, shape))


def step_squeeze(rng, view, array):
    if rng.random() < 0.5 or array.ndim == 0:  # NumPy lets an array of no dims squeeze axis 0; heft does not
        return compare(view.squeeze(), array.squeeze(), "squeeze")
    axis = rng.randrange(-array.ndim - 1, array.ndim + 1)
    return compare(outcome(lambda: view.squeeze(axis)), outcome(lambda: array.squeeze(axis=axis)), axis)


def step_split(rng, view, array):
    if array.ndim == 0:
        return None
    axis, parts, mode = rng.randrange(-array.ndim, array.ndim), rng.randrange(1, 9), rng.randrange(2)
    dim = array.shape[axis]
    made = [outcome(lambda part=part: view.split(axis, part, parts, mode)) for part in range(parts)]
    if mode == 0 and dim % parts:
        assert all(isinstance(part, HeftError) for part in made)
        return None
    most = -(-dim // parts)
    pick = rng.randrange(parts)
    for part in range(parts):
        index = [slice(None)] * array.ndim
        index[axis] = slice(min(part * most, dim), min((part + 1) * most, dim))
        theirs = array[tuple(index)]
        equal(made[part], theirs, (axis, part, parts))
        if part == pick:
            picked = made[part], theirs
    return picked


STEPS = [step_index] * 4 + [step_text] * 4 + [step_permute, step_transpose, step_reshape, step_reshape, step_squeeze, step_split]


def test_chains():
    rng = random.Random(1)
    steps = refused = 0
    for _ in range(heftlib.cases(100000)):
        array = array_of(shape_of(rng))
        view = View.bare("U8", array.shape)
        for _ in range(rng.randrange(1, 5)):
            result = rng.choice(STEPS)(rng, view, array)
            steps += 1
            if result is None:
                refused += 1
            else:
                view, array = result
        if array.size <= 600:
            covers(view, array, (array.shape, array.strides))
    assert refused > steps / 20 and refused < steps / 2, (refused, steps)  # both kinds are tried


def test_huge_steps():
    """Strides of dims of 1 overflow in NumPy, and are left alone in heft: everything else is equal."""
    rng = random.Random(4)
    for _ in range(heftlib.cases(20000)):
        array = array_of(shape_of(rng)[:4])
        items = tuple(slice(*(rng.choice(NUMBERS) for _ in range(3))) for _ in range(array.ndim))
        mine, theirs = outcome(lambda: View.bare("U8", array.shape).index(*items)), outcome(lambda: array[items])
        assert isinstance(mine, HeftError) == isinstance(theirs, Exception), (array.shape, items)
        if not isinstance(mine, HeftError):
            assert mine.shape == theirs.shape
            covers(mine, theirs, (array.shape, items))


# ---- any text -----------------------------------------------------------------------------------------------------

PIECES = ["0", "1", "-1", "2", "7", "00", "01", "10", ":", ":", ":", "::", ",", ",", ",", ", ", " ", "...", "..", ".", "None",
          "newaxis", "Ellipsis", "-", "+", "--", "1.0", "1e3", "0x1", "1_0", "True", "False", "[]", "[", "]", "()", "(", ")",
          "[0]", "'a'", '"', "a", "e", "99999999999999999999", "-99999999999999999999", "nan", "\t", "\n"]


def read_text(text):
    """The items of an index text by Python's own parser, or None where heft refuses: only plain decimal integers, slices of
    them, ..., None, and an empty list alone."""
    if not text.strip(" \t\n\r") or re.fullmatch(r"\s*\(\s*\)\s*", text):
        return ()
    if re.fullmatch(r"\s*\[\s*\]\s*", text):
        return (slice(0, 0),)
    if "(" in text or re.search(r"\d_|0[xob]", text):
        return None
    try:
        tree = ast.parse(f"x[{text}]", mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
        return None

    def number(node):
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            sign, node = (-1 if isinstance(node.op, ast.USub) else 1), node.operand
        if not isinstance(node, ast.Constant) or type(node.value) is not int:
            raise ValueError
        return sign * node.value

    def bound(node):
        return None if node is None or (isinstance(node, ast.Constant) and node.value is None) else number(node)

    def item(node):
        if isinstance(node, ast.Slice):
            return slice(bound(node.lower), bound(node.upper), bound(node.step))
        if isinstance(node, ast.Constant) and node.value in (None, Ellipsis) and not isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.Name) and node.id in ("newaxis", "Ellipsis"):
            return {"newaxis": None, "Ellipsis": Ellipsis}[node.id]
        return number(node)

    nodes = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
    try:
        return tuple(item(node) for node in nodes)
    except ValueError:
        return None


def test_texts():
    rng = random.Random(2)
    accepted = 0
    array = array_of((4, 3, 5, 2))
    view = View.bare("U8", array.shape)
    for _ in range(heftlib.cases(100000)):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 8)))
        items = read_text(text)
        mine = outcome(lambda: view.index_text(text))
        if items is None:
            assert isinstance(mine, HeftError) and mine.status == "invalid-argument", (text, mine)
            assert mine.offset is not None and mine.offset <= len(text), (text, mine)
        else:
            theirs = outcome(lambda: take(array, items))
            assert isinstance(mine, HeftError) == isinstance(theirs, Exception), (text, mine, theirs)
            if not isinstance(mine, HeftError):
                accepted += 1
                assert mine.shape == theirs.shape, (text, mine.shape)
                covers(mine, theirs, text)
    assert accepted > 0


def test_sub_byte():
    """Runs of sub-byte views: refused exactly where one starts or ends inside a byte; else the bytes hold the elements."""
    rng = random.Random(3)
    for _ in range(heftlib.cases(20000)):
        dtype = rng.choice(("F4", "F6_E2M3"))
        bits = heftlib.BITS[dtype]
        array = array_of(shape_of(rng)[:4])
        items = items_of(rng, array)
        view = outcome(lambda: View.bare(dtype, array.shape).index(*items))
        if isinstance(view, HeftError):
            continue
        elements = take(array, items).ravel().tolist()
        wanted = [bit for element in elements for bit in range(element * bits, (element + 1) * bits)]
        starts = [i for i in range(len(wanted)) if i == 0 or wanted[i] != wanted[i - 1] + 1]
        ends = [wanted[i - 1] + 1 for i in starts[1:]] + ([wanted[-1] + 1] if wanted else [])
        whole = all(bit % 8 == 0 for bit in [wanted[i] for i in starts] + ends)
        runs = outcome(view.runs)
        assert isinstance(runs, HeftError) != whole, (dtype, array.shape, items, runs)
        if whole:
            assert [bit for offset, length in runs for bit in range(8 * offset, 8 * (offset + length))] == wanted
        assert view.nbytes == (len(elements) * bits + 7) // 8


heftlib.run(globals())
