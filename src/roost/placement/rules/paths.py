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


def reads_once(node: Expr) -> frozenset[Path]:
    """Return the same without remembering it of every part: for whole rules when they are set."""
    found: set[Path] = set()
    waiting: list[tuple[Expr, frozenset[str]]] = [(node, frozenset())]
    while waiting:
        node, bound = waiting.pop()
        if isinstance(node, Has):
            node = Select(node.operand, node.field)
        if isinstance(node, Macro):
            waiting.append((node.over, bound))
            inner = bound | {node.variable}
            inside = (node.predicate, node.result)
            waiting.extend((part, inner) for part in inside if part is not None)
        elif isinstance(node, Select | Ident | Index) and (path := path_of(node)) is not None:
            if path[0] not in bound:
                found.add(path)
        elif not isinstance(node, Literal):
            waiting.extend([(part, bound) for part in children(node)])
    return frozenset(found)


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
