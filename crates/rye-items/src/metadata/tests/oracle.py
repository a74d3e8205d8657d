# What Python makes of each literal; null where metadata could not hold it.
import ast, json, math, struct, sys, warnings

warnings.simplefilter("ignore")


class Refused(Exception):
    pass


def exact(node, source):
    """The value of a literal, of those kinds that JSON has."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [exact(item, source) for item in node.elts]
    if isinstance(node, ast.Dict):
        pairs = []
        for key, value in zip(node.keys, node.values):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise Refused
            pairs.append([exact(key, source), exact(value, source)])
        if len({key for key, _ in pairs}) < len(pairs):
            raise Refused
        return {"o": pairs}
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, (ast.UAdd, ast.USub)):
        raise Refused
    if not isinstance(node, (ast.Constant, ast.UnaryOp)):
        raise Refused
    value = ast.literal_eval(node)
    if isinstance(value, str):
        value.encode()
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return {"i": str(value)}
    # A large decimal integer is a string with the same digits.
    if isinstance(value, int) and "0x" not in (text := ast.get_source_segment(source, node).lower()):
        if "0o" not in text and "0b" not in text:
            return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return {"f": str(struct.unpack("<Q", struct.pack("<d", value + 0.0))[0])}
    raise Refused


def answer(literal):
    try:
        source = "X = " + literal + "\n"
        return {"v": exact(ast.parse(source).body[0].value, source)}
    except (Refused, SyntaxError, ValueError, UnicodeEncodeError):
        return None


print(json.dumps([answer(literal) for literal in json.load(sys.stdin)]))
