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


def reads(node: Expr, bound: frozenset[str] = frozenset()) -> frozenset[Path]:
    """Return every path that an expression reads; a variable that a macro binds is not one."""
    path = path_of(node)
    if path is not None:
        return frozenset() if path[0] in bound else frozenset({path})
    if isinstance(node, Has):
        return reads(Select(node.operand, node.field), bound)
    if isinstance(node, Macro):
        inner = bound | {node.variable}
        inside = [part for part in (node.predicate, node.result) if part is not None]
        found = [reads(node.over, bound), *(reads(part, inner) for part in inside)]
    else:
        found = [reads(part, bound) for part in children(node)]
    return frozenset().union(*found)


def names(node: Expr) -> frozenset[str]:
    """Return the variables that an expression reads."""
    return frozenset(path[0] for path in reads(node))
