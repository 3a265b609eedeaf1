"""What an expression reads: the paths of fields, as far as they are known without evaluating."""

from roost.rules.syntax import Expr, Has, Ident, Index, Literal, Macro, Select, children

#: A variable and the fields after it, such as ("host", "labels", "tier").
Path = tuple[str, ...]


def path_of(node: Expr) -> Path | None:
    """Return the path that a chain of fields reads, None for any other expression."""
    match node:
        case Ident(name):
            return (name,)
        case Select(operand, field) | Index(operand, Literal(_, str(field))):
            before = path_of(operand)
            return None if before is None else (*before, field)
    return None


#: What nodes read that were asked for lately, by identity: to hash a node costs as much as to go
#: through it. The node itself is kept with it, so that no other can have its identity.
_KNOWN: dict[int, tuple[Expr, frozenset[Path], frozenset[str]]] = {}
_MOST_KNOWN = 65_536


def reads(node: Expr) -> frozenset[Path]:
    """Return every path that an expression reads; a variable that a macro binds is not one."""
    return _known(node)[1]


def names(node: Expr) -> frozenset[str]:
    """Return the variables that an expression reads."""
    return _known(node)[2]


def _known(node: Expr) -> tuple[Expr, frozenset[Path], frozenset[str]]:
    found = _KNOWN.get(id(node))
    if found is None:
        paths = _reads(node, frozenset())
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        found = _KNOWN[id(node)] = node, paths, frozenset(path[0] for path in paths)
    return found


def _reads(node: Expr, bound: frozenset[str]) -> frozenset[Path]:
    path = path_of(node)
    if path is not None:
        return frozenset() if path[0] in bound else frozenset({path})
    if isinstance(node, Has):
        return _reads(Select(node.operand, node.field), bound)
    if isinstance(node, Macro):
        inner = bound | {node.variable}
        inside = [part for part in (node.predicate, node.result) if part is not None]
        found = [_reads(node.over, bound), *(_reads(part, inner) for part in inside)]
    else:
        found = [_reads(part, bound) if bound else reads(part) for part in children(node)]
    return frozenset().union(*found)
