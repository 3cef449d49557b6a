"""The grammar of random chat templates for chat_random.py: every filter, test, method, operator and tag of Jinja."""

GLOBAL_NAMES = ["messages", "tools", "bos_token", "eos_token", "add_generation_prompt", "missing", "documents"]

STRINGS = [
    "", "a", "b", "A", "ab", "abc", "banana", "Hello World", "hello big world of many words", "a,b,,c", " pad ", "\\n", "a\\nb\\n\\nc\\n", "x\\ty", "1", "42", "-7", "3.5", "1e3", "0x1f", "0b101", "1_000", " 12 ", "²", "٣",
    "<b>", "a&b<c>\\\"d\\'", "it's", 'say \\"x\\"', "é", "ß", "ǆ", "ΑΣ", "ΣΑΣ. x", "ﬁ", "İı", "🙂", "\\u00a0", "\\u2028", "\\x00\\x7f", "\\\\", "%", "100%", "{}", "user", "role", "content", "a-b c_d", "foo-bar--baz qux", "1st they're o'neil (x) [y] {z}",
    "<p>a <b>c</b><!-- d <e> -->  f &amp; g &lt;h &#65; &#x80; &copy &nosuch;</p>", "key=value", "a.b.c", "AbC dEf", "TITLE Case", "ünï", "一二", "x" * 30, "the quick brown fox jumps over the lazy dog and runs away from every hyphen-ated long-word-here", "\\r\\n\\x0b\\x1c", "=", "-", ",", "upper", "odd",
    "plain", "A1", "a1_", "None", "True", "inf", "+5", "--5", "1.50", ".5", "5.", "nan",
]
INTS = ["0", "1", "2", "3", "4", "5", "7", "10", "12", "42", "100", "255", "1000", "-1", "-2", "-5", "65", "8364", "123456789", "0x1F", "0b11", "0o17", "1_000"]
BIG = ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890", "9223372036854775807"]
FLOATS = ["0.0", "0.5", "1.0", "1.5", "2.5", "-0.5", "-2.675", "3.14159", "1e3", "1e-7", "1.5e300", "123456.789", "1e16", "1e22", "0.1", "-0.0", "99999.5", "1234567.0", "5e-05", "100.0"]
SPECS = ["", "5", ">5", "<5", "^7", "*^9", "=6", "05", "+", "-", " ", "+.2f", ",", "_", "10,", "010,", "09_d", ".2f", ".0f", ".3", "8.3f", "e", ".2e", "E", "g", "G", ".3g", "#g", "%", ".1%", "d", "x", "X", "#x", "#010x", "o", "#o", "b", "#b", "_b", "_x", "c", "n", "s", "10s", ".2s", "*>8.2s", "05s", "=5s", "+s", "z.1f", "#.0f", ".2e", "é>4", "{>4", ",.2f", "015,.2f", "_.1f", "q", "5x5", "..", ",_", "0>6", "<06", "^06d", " d", "=+7d", "r", ".0%", ".10g", "#.3g", "020", "1000000000000"]
PERCENTS = ["%s", "%d", "%i", "%5s|", "%-5s|", "%05d", "%+d", "% d", "%x", "%X", "%#x", "%#o", "%o", "%f", "%.2f", "%8.3f|", "%-8.1f|", "%08.2f", "%e", "%.1E", "%g", "%G", "%#g", "%.3g", "%c", "%5c|", "%r", "%a", "%10r|", "%.2s", "%%", "%u", "%.5d", "%+.1f", "%*d", "%.*f", "%-*s|", "%ld", "%hs", "%", "%q", "%b", "%#08x", "%#.0f", "%F", "%.0f", "%-05d|", "%+05d", "%(a)s", "%(b)5d", "%(nosuch)s", "%5%"]
FIELDS = ["{}", "{0}", "{1}", "{2}", "{a}", "{b}", "{0.real}", "{0[a]}", "{0[0]}", "{a[0]}", "{a.x}", "{0.upper}", "{0!r}", "{!s}", "{!a}", "{0!r:>9}", "{:{}}", "{0:{1}}", "{a:{b}}", "{{", "}}", "{", "}", "{nosuch}", "{!q}", "{.real}", "{0.__class__}", "{0[__class__]}", "{0[-1]}", "{0[a].b}", "{a!r}", "{:}", "{0[}", "{]}", "{0[a]x}", "{0.}", "{0[]}", "{ }", "{-1}"]
STRFTIME = ["%Y-%m-%d", "%d %b %Y", "%H:%M:%S", "%A %a %B %h %b", "%I %p %P %l %k", "%j %U %W %V %G %g", "%C %y %u %w", "%e %D %F %T %R %r", "%c|%x|%X", "%f", "%%", "%n%t", "%-d %-m %-H %-I %-M %-S %-y %-j", "%_d %_m %_H", "%^a %^B %#p %#a %#Z", "%03d %5m", "%10A", "%Ey %EC %Od %OH %OB", "%z%Z", "%0e", "%s0", "x", "", "%Q", "é%Y", "%-e%-k", "%010Y", "%_5j", "%5y", "%", "%E", "%-", "%:z", "%G-W%V-%u"]

# For each filter: the kind of its input, its arguments (name, kind; ? marks an optional name), and
# the kind of its result.
FILTERS = {
    "abs": ("num", [], "num"), "attr": ("any", [("name", "name")], "any"), "batch": ("list", [("linecount", "size"), ("fill_with?", "any")], "gen"),
    "capitalize": ("str", [], "str"), "center": ("str", [("width?", "size")], "str"), "count": ("list", [], "int"), "length": ("any", [], "int"),
    "d": ("any", [("default_value?", "any"), ("boolean?", "bool")], "any"), "default": ("any", [("default_value?", "any"), ("boolean?", "bool")], "any"),
    "dictsort": ("dict", [("case_sensitive?", "bool"), ("by?", "by"), ("reverse?", "bool")], "list"), "e": ("str", [], "safe"), "escape": ("str", [], "safe"),
    "filesizeformat": ("num", [("binary?", "bool")], "str"), "first": ("list", [], "any"), "float": ("any", [("default?", "any")], "num"), "forceescape": ("str", [], "safe"),
    "format": ("percent", [("*", "any"), ("*", "any")], "str"), "groupby": ("records", [("attribute", "path"), ("default?", "any"), ("case_sensitive?", "bool")], "list"),
    "indent": ("str", [("width?", "indent"), ("first?", "bool"), ("blank?", "bool")], "str"), "int": ("any", [("default?", "any"), ("base?", "base")], "int"),
    "join": ("list", [("d?", "str"), ("attribute?", "path")], "str"), "last": ("list", [], "any"), "list": ("list", [], "list"), "lower": ("str", [], "str"), "items": ("dict", [], "gen"),
    "map": ("list", [], "gen"), "min": ("list", [("case_sensitive?", "bool"), ("attribute?", "path")], "any"), "max": ("list", [("case_sensitive?", "bool"), ("attribute?", "path")], "any"),
    "pprint": ("any", [], "str"), "reject": ("list", [], "gen"), "rejectattr": ("records", [], "gen"), "select": ("list", [], "gen"), "selectattr": ("records", [], "gen"),
    "replace": ("str", [("old", "str"), ("new", "str"), ("count?", "size")], "str"), "reverse": ("list", [], "gen"), "round": ("num", [("precision?", "places"), ("method?", "rounding")], "num"),
    "safe": ("str", [], "safe"), "slice": ("list", [("slices", "size"), ("fill_with?", "any")], "gen"), "sort": ("list", [("reverse?", "bool"), ("case_sensitive?", "bool"), ("attribute?", "path")], "list"),
    "string": ("any", [], "str"), "striptags": ("str", [], "str"), "sum": ("list", [("attribute?", "path"), ("start?", "num")], "num"), "title": ("str", [], "str"),
    "tojson": ("any", [("ensure_ascii?", "bool"), ("indent?", "indent"), ("separators?", "separators"), ("sort_keys?", "bool")], "str"), "trim": ("str", [("chars?", "str")], "str"),
    "truncate": ("str", [("length?", "size"), ("killwords?", "bool"), ("end?", "str"), ("leeway?", "size")], "str"), "urlize": ("address", [("trim_url_limit?", "limit"), ("nofollow?", "bool"), ("target?", "str"), ("rel?", "str"), ("extra_schemes?", "schemes")], "str"), "unique": ("list", [("case_sensitive?", "bool"), ("attribute?", "path")], "gen"),
    "upper": ("str", [], "str"), "urlencode": ("any", [], "str"), "wordcount": ("str", [], "int"),
    "wordwrap": ("str", [("width?", "size"), ("break_long_words?", "bool"), ("wrapstring?", "str"), ("break_on_hyphens?", "bool")], "str"), "xmlattr": ("dict", [("autospace?", "bool")], "str"),
}
TESTS = {
    **{name: [] for name in "boolean callable defined escaped even false filter float integer iterable lower mapping none number odd sequence string test true undefined upper".split()},
    "divisibleby": [("num", "int")], "sameas": [("other", "any")], "in": [("seq", "list")],
    **{name: [("*", "any")] for name in "eq equalto ne gt greaterthan ge lt lessthan le == != > >= < <=".split()},
}
STR_METHODS = {
    "capitalize": [], "casefold": [], "center": ["size", "?fill"], "count": ["str", "?size", "?size"], "endswith": ["affix", "?size", "?size"], "expandtabs": ["?size"], "find": ["str", "?size", "?size"],
    "index": ["str", "?size", "?size"], "join": ["list"], "ljust": ["size", "?fill"], "lower": [], "lstrip": ["?str"], "partition": ["str"], "removeprefix": ["str"], "removesuffix": ["str"],
    "replace": ["str", "str", "?size"], "rfind": ["str", "?size", "?size"], "rindex": ["str", "?size"], "rjust": ["size", "?fill"], "rpartition": ["str"], "rsplit": ["?sep", "?size"], "rstrip": ["?str"],
    "split": ["?sep", "?size"], "splitlines": ["?bool"], "startswith": ["affix", "?size", "?size"], "strip": ["?str"], "swapcase": [], "title": [], "translate": ["table"], "upper": [], "zfill": ["size"],
    "isalnum": [], "isalpha": [], "isascii": [], "isdecimal": [], "isdigit": [], "isidentifier": [], "islower": [], "isnumeric": [], "isprintable": [], "isspace": [], "istitle": [], "isupper": [], "maketrans": ["str", "?str"], "encode": [], "nosuch": [],
}
OTHER_METHODS = {
    "list": {"copy": [], "count": ["any"], "index": ["any", "?size", "?size"], "append": ["any"], "pop": [], "sort": [], "nosuch": []},
    "dict": {"get": ["name", "?any"], "keys": [], "values": [], "items": [], "copy": [], "fromkeys": ["list", "?any"], "pop": ["str"], "update": ["dict"], "setdefault": ["str"], "nosuch": []},
    "int": {"bit_length": [], "bit_count": [], "conjugate": [], "is_integer": [], "as_integer_ratio": [], "nosuch": []},
    "float": {"hex": [], "conjugate": [], "is_integer": [], "as_integer_ratio": [], "nosuch": []},
    "range": {"count": ["int"], "index": ["int"]}, "tuple": {"count": ["any"], "index": ["any", "?size"]},
}
ATTRIBUTES = ["role", "content", "name", "tool_calls", "real", "imag", "numerator", "denominator", "start", "stop", "step", "grouper", "list", "__class__", "_x", "x", "a", "b", "items", "0", "nosuch"]
LOOP = "index index0 revindex revindex0 first last length depth depth0 previtem nextitem nosuch".split()


VALUES = [
    "0", "5", "-5", "255", "1234567", "18446744073709551616", "true", "0.0", "-0.0", "0.5", "-2.5", "3.14159", "1234567.891", "-0.0001234", "1e16", "99999.5", "1e-7", "none", "missing", "[1]", "(1,)", "{'a': 1}", "('<a> b' | safe)",
    "['b', 'A', 'a']", "[3, 1, 2]", "range(4)", "{'b': 2, 'A': 1}", "messages", "tools", "[none, none]", "[[1, 2], [3]]", "(1, 'a')", "[missing]", "['x' * 30]", "[1.5, 2]", "'12.7'", "'0x1f'", "'1_0'", "' 5 '", "{1: 2, 'x': none}",
    "''", "'a'", "'Hello World'", "'a,b,,c'", "'  x y  '", "'ßΑΣ ǆ ﬁ'", "'a\\nb\\r\\nc\\n'", "'x\\ty\\t'", "'²٣½Ⅷ一'", "'A1b C2d'", "'é🙂x'", "{}.keys()", "({'a': 1}).items()",
]
FLAGS = ["", "", "-", "_", "0", "^", "#", "5", "05", "_5", "-5", "^8", "E", "O", "10", "_^"]
CODES = "aAbBcCdDeFgGhHIjklmMnpPrRStTuUVwWxXyYzZ%f+QL"


class Grammar:
    """Grammar generates random templates."""

    def __init__(self, rng):
        self.rng, self.names, self.macros, self.loops, self.depth, self.blocks = rng, list(GLOBAL_NAMES), [], 0, 0, 0
        self.noise = self.pick([0.04, 0, 0])  # fraction of values of a random kind

    def pick(self, options):
        return options[self.rng.randrange(len(options))]

    def chance(self, share):
        return self.rng.random() < share

    # Expressions.
    def expression(self, kind, depth):
        if self.chance(self.noise):
            kind = self.pick(["str", "int", "float", "bool", "list", "dict", "any", "none", "safe", "tuple", "range", "name"])
        if kind == "any":
            kind = self.pick(["str", "str", "int", "int", "float", "bool", "list", "list", "dict", "none", "safe", "tuple", "range", "variable", "variable", "gen"])
        if depth > 0 and self.chance(0.02 + self.noise):
            return self.general(kind, depth - 1)
        return getattr(self, "make_" + kind)(max(depth, 0))

    def general(self, kind, depth):
        choice = self.rng.randrange(9)
        if choice == 0:
            return f"({self.expression(kind, depth)} if {self.expression('bool', depth)} else {self.expression(kind, depth)})"
        if choice == 1:
            return f"({self.expression(kind, depth)} {self.pick(['or', 'and'])} {self.expression(kind, depth)})"
        if choice == 2:
            return f"({self.expression('any', depth)}){self.filter_call(self.pick(list(FILTERS)), depth)}"
        if choice == 3:
            return f"[{self.expression(kind, depth)}][{self.pick(['0', '-1', '1'])}]"
        if choice == 4:
            return f"({self.expression('any', depth)}).{self.pick(ATTRIBUTES)}"
        if choice == 5:
            return f"({self.expression('any', depth)})[{self.expression('any', depth)}]"
        if choice == 6 and self.macros:
            return f"{self.pick(self.macros)}({self.call_arguments(depth)})"
        if choice == 7:
            return f"({self.expression('any', depth)})[{self.part(depth)}]"
        return f"({self.expression(kind, depth)} if {self.expression('bool', depth)})"

    def part(self, depth):
        def bound():
            return "" if self.chance(0.3) else self.expression("size", 0)
        return bound() + ":" + bound() + (":" + bound() if self.chance(0.5) else "")

    def make_variable(self, depth):
        if self.loops and self.chance(0.3):
            return "loop." + self.pick(LOOP)
        name = self.pick(self.names)
        if name == "messages" and self.chance(0.8):
            name += self.pick(["[0]", "[-1]", "[1]", ".0", "[2]"]) + self.pick(["", ".content", ".role", "['content']", ".tool_calls", ".name", ".tool_calls[0].function.arguments"])
        return name

    def make_name(self, depth):
        return self.pick(["'a'", "'b'", "'role'", "'content'", "'x'", "'upper'", "'real'", "'items'", "0", "1"])

    def make_none(self, depth):
        return self.pick(["none", "None", "missing"])

    def make_str(self, depth):
        choice = self.rng.randrange(14) if depth > 0 else 0
        if choice <= 3:
            text, mark = self.pick(STRINGS), self.pick("'\"")
            return mark + text.replace("\\'", "'").replace('\\"', '"').replace(mark, "\\" + mark) + mark
        depth -= 1
        if choice == 4:
            return f"({self.expression('str', depth)} {self.pick(['+', '~', '+'])} {self.expression('str', depth)})"
        if choice == 5:
            return f"({self.expression('any', depth)} ~ {self.expression('any', depth)})"
        if choice == 6:
            return f"({self.expression('str', depth)} * {self.expression('size', 0)})"
        if choice == 7:
            return self.formatted(depth)
        if choice == 8:
            return self.braces(depth)
        if choice == 9:
            return f"({self.expression('str', depth)})[{self.part(depth)}]"
        if choice == 10:
            return f"({self.expression('str', depth)})[{self.expression('size', 0)}]"
        if choice == 11:
            return f"strftime_now('{self.pick(STRFTIME)}')"
        if choice == 12:
            return self.method_call("str", depth)
        return self.filtered("str", depth)

    def formatted(self, depth):
        text = "".join(self.pick(PERCENTS) + self.pick(["", " ", "x"]) for _ in range(self.rng.randrange(1, 3)))
        value = self.pick(["(%s,)" % self.expression("any", depth), "(%s, %s)" % (self.expression("num", depth), self.expression("any", depth)), self.expression("any", depth), "{'a': %s, 'b': %s}" % (self.expression("any", depth), self.expression("num", depth))])
        return f"('{text}'{self.pick(['', '', '', ' | safe'])}) % {value}"

    def braces(self, depth):
        if self.chance(0.6):
            text = "{" + self.pick(["", "", "0"]) + ":" + self.pick(SPECS) + "}"
            return f"'{text}'.format({self.expression(self.pick(['int', 'float', 'num', 'str', 'any', 'bool']), depth)})"
        text = "".join(self.pick(FIELDS) + self.pick(["", "-"]) for _ in range(self.rng.randrange(1, 4)))
        arguments = ", ".join([self.expression("any", depth) for _ in range(self.rng.randrange(3))] + [f"{name}={self.expression('any', depth)}" for name in "ab" if self.chance(0.5)])
        if self.chance(0.1):
            return f"'{text}'.format_map({self.expression('dict', depth)})"
        return f"('{text}'{self.pick(['', '', '', ' | safe'])}).format({arguments})"

    def make_percent(self, depth):
        return "'" + self.pick(PERCENTS) + self.pick(PERCENTS + [""] * 30) + "'"

    def make_safe(self, depth):
        return f"({self.expression('str', depth - 1)} | {self.pick(['safe', 'safe', 'e', 'escape', 'forceescape'])})"

    def make_int(self, depth):
        choice = self.rng.randrange(9) if depth > 0 else 0
        if choice <= 2:
            return self.pick(INTS if self.chance(0.97) else BIG)
        depth -= 1
        if choice == 3:
            return f"({self.expression('int', depth)} {self.pick(['+', '-', '*', '//', '%'])} {self.expression('int', depth)})"
        if choice == 4:
            return f"({self.pick(INTS[:8])} ** {self.pick(INTS[:7])})"
        if choice == 5:
            return f"({self.expression('any', depth)} | length)"
        if choice == 6:
            return self.method_call("int", depth)
        if choice == 7:
            return f"{self.pick('-+')}{self.expression('int', depth)}"
        return self.filtered("int", depth)

    def make_float(self, depth):
        choice = self.rng.randrange(6) if depth > 0 else 0
        if choice <= 2:
            return self.pick(FLOATS)
        if choice == 3:
            return f"({self.expression('num', depth - 1)} {self.pick(['+', '-', '*', '/', '//', '%'])} {self.expression('num', depth - 1)})"
        if choice == 4:
            return self.method_call("float", depth - 1)
        return self.filtered("num", depth - 1)

    def make_num(self, depth):
        return self.expression(self.pick(["int", "float", "int", "bool"]), depth)

    def make_size(self, depth):
        if not self.noise:
            return self.pick(["0", "1", "2", "3", "4", "5", "8", "10", "20", "-1", "-2", "30"])
        return self.pick(["0", "1", "2", "3", "4", "5", "8", "10", "20", "-1", "-2", "-4", "none", "true", "1.0", "'1'", "30", "79"] + ["2", "3", "6", "9"] * 3)

    def make_address(self, depth):
        words = ["http://a.com", "https://example.org/x?y=z&w=<v>", "www.site.net.", "(foo.com)", "user@mail.com", "mailto:a@b.co,", "ftp:x", "tel:+1", "http://1.2.3.4:80/p", "[x](http://q.edu)", "<http://b.info>", "a.b", "xn--a.com", "https://[::1]/", "www.é.com", "text", "http://a.com/(b)", "@", "mailto:", "a@b.c\n", "foo.museum", "http://localhost"]
        return "'" + self.pick([" ", "  ", "\n"]).join(self.pick(words) for _ in range(self.rng.randrange(1, 4))) + "'"

    def make_schemes(self, depth):
        return self.pick(["['ftp:', 'tel:']", "['tel:']", "['x']", "none", "[]"])

    def make_limit(self, depth):
        return self.pick(["5", "8", "20", "none", "0", "-1"])

    def make_places(self, depth):
        return self.pick(["0", "1", "2", "3", "-1", "-2", "5", "none", "true", "1.0", "12"])

    def make_indent(self, depth):
        return self.pick(["0", "1", "2", "4", "'>'", "'  '", "none", "true", "-1", "('<' | safe)"])

    def make_base(self, depth):
        return self.pick(["2", "8", "10", "16", "0", "36", "1", "37", "none", "7"])

    def make_by(self, depth):
        return self.pick(["'key'", "'value'", "'value'", "'x'", "none"])

    def make_rounding(self, depth):
        return self.pick(["'common'", "'ceil'", "'floor'", "'x'"])

    def make_separators(self, depth):
        return self.pick(["(',', ':')", "[', ', ': ']", "none", "',:'", "(1, 2)"])

    def make_fill(self, depth):
        return self.pick(["'*'", "' '", "'0'", "'é'", "'ab'", "''", "'<'", "1"])

    def make_sep(self, depth):
        return self.pick(["','", "' '", "none", "'a'", "'--'", "'-'", "''", "'\\n'", "1", "'b'"])

    def make_affix(self, depth):
        return self.pick([self.expression("str", 0), "('a', 'b', 'h')", "['a']", "''", "()"])

    def make_table(self, depth):
        return self.pick(["{97: 'x', 98: none, 99: 8364}", "{}", "''.maketrans('abc', 'xyz')", "''.maketrans({'a': 'AA', 98: 'c'})", "''.maketrans('ab', 'cd', 'n')", "['a', 'b']", "'x'", "{97: 1.5}", "none"])

    def make_path(self, depth):
        return self.pick(["'a'", "'b'", "'a.b'", "'a,b'", "0", "1", "'0'", "'role'", "'content'", "'nosuch'", "'x'", "none", "'role,content'"])

    def make_bool(self, depth):
        choice = self.rng.randrange(8) if depth > 0 else 0
        if choice <= 1:
            return self.pick(["true", "false", "True", "False", "1", "0", "''", "none"])
        depth -= 1
        if choice == 2:
            kind = self.pick(["str", "int", "num", "num", "list", "any", "tuple", "dict"])
            operators = ["==", "!=", "<", "<=", ">", ">="] if kind in ("str", "int", "num") or self.chance(self.noise * 10) else ["==", "!="]
            return f"({self.expression(kind, depth)} {self.pick(operators)} {self.expression(kind, depth)})"
        if choice == 3:
            if self.chance(0.4):
                return f"({self.expression('str', depth)} {self.pick(['in', 'not in'])} {self.expression(self.pick(['str', 'dict']), depth)})"
            return f"({self.expression(self.pick(['str', 'any', 'int']), depth)} {self.pick(['in', 'not in'])} {self.expression(self.pick(['list', 'range', 'tuple']), depth)})"
        if choice == 4:
            return f"(not {self.expression('any', depth)})"
        if choice == 5:
            return f"({self.expression('num', depth)} < {self.expression('num', depth)} <= {self.expression('num', depth)})"
        return self.tested(depth)

    def tested(self, depth):
        name = self.pick(list(TESTS))
        arguments = TESTS[name]
        if not name.isalpha():
            return f"([{self.expression('any', depth)}] | select('{name}', {self.expression('any', depth)}) | list)"
        text = f"{self.expression('any', depth)} is {self.pick(['', '', 'not '])}{name}"
        if not arguments:
            return f"({text}{'(1)' if self.chance(0.03) else ''})"
        value = self.expression(arguments[0][1], depth)
        if self.chance(0.3) and value[0].isalnum() and " " not in value:
            return f"({text} {value})"
        named = arguments[0][0] + "=" if arguments[0][0] != "*" and self.chance(0.2) else ""
        return f"({text}({named}{value}))"

    def items(self, depth, kind="any"):
        return [self.expression(kind, depth - 1) for _ in range(self.rng.randrange(5))]

    def make_list(self, depth):
        choice = self.rng.randrange(14) if depth > 0 else 0
        kind = self.pick(["any", "str", "int", "num", "str", "records"])
        if choice <= 4:
            return "[" + ", ".join(self.items(depth, kind if kind != "records" else "dict")) + "]"
        depth -= 1
        if choice == 5:
            return f"({self.expression('list', depth)} {self.pick(['+', '*'])} {self.pick([self.expression('list', depth), self.expression('size', 0)])})"
        if choice == 6:
            return f"({self.expression(self.pick(['list', 'tuple', 'range']), depth)})[{self.part(depth)}]"
        if choice == 7:
            return self.make_range(depth)
        if choice == 8:
            return self.expression("str", depth)
        if choice == 9:
            return self.expression("dict", depth) + self.pick(["", ".keys()", ".values()", ".items()"])
        if choice == 10:
            return self.method_call(self.pick(["list", "tuple", "range", "dict"]), depth)
        if choice == 11:
            return f"({self.expression('gen', depth)} | list)"
        if choice == 12:
            return f"'{self.pick(['a b', 'a,b,c', ''])}'.split({self.pick(['', repr(',')])})"
        return self.filtered("list", depth)

    def make_records(self, depth):
        return self.pick([
            "messages", "[{'a': 2, 'b': 'x'}, {'a': 1, 'b': 'Y'}, {'a': 2, 'b': 'y'}, {'b': 'X'}]", "[[2, 'a'], [1, 'B'], [2, 'b']]", "[('b', 1), ('A', 2), ('a', 3)]", "[{'a': {'b': 1}}, {'a': {'b': 0}}, {'a': {}}]",
            "['bb', 'A', 'a', 'B']", self.expression("list", depth - 1), "[{'role': 'u'}, {'role': 'U'}, {'role': none}]",
        ])

    def make_tuple(self, depth):
        items = self.items(depth)
        return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"

    def make_range(self, depth):
        return self.pick(["range(3)", "range(1, 7, 2)", "range(5, 0, -1)", "range(0)", "range(10)", "range(2, 4)", "range(-3, 3)", "range(4)[::-1]", "range(10)[2:8:3]"])

    def make_dict(self, depth):
        choice = self.rng.randrange(8) if depth > 0 else self.rng.randrange(3)
        if choice == 0:
            return self.pick(["{}", "{'a': 1}", "{'b': 2, 'A': 1, 'a': 3}", "{1: 'x', 2.5: 'y', none: 'z', true: 'w'}", "{(1, 2): 3}", "{'a': {'b': [1, 2]}, 'items': 4}", "{'x': '<', 'y&': none}"])
        if choice <= 4:
            keys = ["'a'", "'b'", "'x'", "'C'", "1", "'a b'", "'z<'", "2.0", "none"]
            return "{" + ", ".join(f"{self.pick(keys)}: {self.expression('any', depth - 1)}" for _ in range(self.rng.randrange(4))) + "}"
        if choice == 5:
            return f"dict({self.pick(['', 'a=1', self.expression('dict', depth - 1), '[(1, 2), (3, 4)]', '**' + self.expression('dict', depth - 1)])})"
        if choice == 6:
            return self.pick(["dict.fromkeys('ab', 1)", "{}.fromkeys([1, 2])", "namespace(a=1, b='x')", "dict(a=[1, 2], b={})"])
        return self.expression("variable", depth - 1)

    def make_gen(self, depth):
        return self.filtered("gen", depth)

    def filtered(self, kind, depth):
        names = [name for name, (_, _, made) in FILTERS.items() if made == kind]
        name = self.pick(names if names and self.chance(0.9) else list(FILTERS))
        of = FILTERS[name][0]
        return f"({self.expression(of, depth - 1)}{self.filter_call(name, depth)})"

    def filter_call(self, name, depth):
        if name == "map":
            inner = self.pick([n for n in FILTERS if n not in ("map", "select", "reject", "selectattr", "rejectattr")])
            options = [f"attribute={self.make_path(0)}", f"'{inner}'", f"'{inner}'", f"'{inner}', {self.expression('any', 0)}", f"attribute={self.make_path(0)}, default={self.expression('any', 0)}", "", "'nosuch'"]
            return f" | map({self.pick(options)})" + self.pick(["", " | list", " | list", " | join('|')"])
        if name in ("select", "reject", "selectattr", "rejectattr"):
            test = self.pick(list(TESTS))
            arguments = [self.make_path(0)] if name.endswith("attr") else []
            if self.chance(0.8):
                arguments += [f"'{test}'"] + [self.expression(kind, 0) for _, kind in TESTS[test]]
            return f" | {name}({', '.join(arguments)})" + self.pick(["", " | list", " | list", " | list | length"])
        arguments, named = [], False
        for parameter, kind in FILTERS[name][1]:
            parameter, optional = parameter.rstrip("?"), parameter.endswith("?")
            if optional and self.chance(0.55):
                named = True
                continue
            value = self.expression(kind, min(depth, 1))
            if parameter != "*" and (named or self.chance(0.3)):
                arguments.append(f"{parameter}={value}")
                named = True
            else:
                arguments.append(value)
        if self.chance(self.noise / 2):
            arguments.append(self.pick(["nosuch=1", "1", "*[1]", "**{'x': 1}"]) if not named else "nosuch=1")
        after = " | list" if FILTERS[name][2] == "gen" and not self.chance(self.noise * 4) else ""
        return f" | {name}" + (f"({', '.join(arguments)})" if arguments or self.chance(0.3) else "") + after

    def method_call(self, kind, depth):
        table = STR_METHODS if kind == "str" else OTHER_METHODS[kind]
        name = self.pick(list(table) if self.noise else [n for n in table if n not in ("index", "rindex", "nosuch", "encode", "append", "pop", "sort", "update", "setdefault")])
        arguments = []
        for argument in table[name]:
            if argument.startswith("?") and self.chance(0.5):
                break
            arguments.append(self.expression(argument.lstrip("?"), 0 if argument != "list" else depth))
        if self.chance(0.01):
            arguments.append("1")
        of = self.expression(kind, depth)
        if kind == "str" and self.chance(0.15):
            of += " | safe"
        if self.chance(self.noise):
            return f"({of}).{name}"
        attribute = f".{name}" if self.chance(0.9) else f"['{name}']"
        return f"({of}){attribute}({', '.join(arguments)})"

    def call_arguments(self, depth):
        arguments = [self.expression("any", depth) for _ in range(self.rng.randrange(3))]
        arguments += [f"{name}={self.expression('any', depth)}" for name in "abx" if self.chance(0.2)]
        return ", ".join(arguments)

    def probe(self):
        """Return a template with one operation on one of VALUES."""
        choice, value = self.rng.randrange(10), self.pick(VALUES)
        if choice == 0:
            return f"{{{{ '{{:{self.pick(SPECS)}}}'.format({value}) }}}}"
        if choice == 1:
            return f"{{{{ ('{self.pick(PERCENTS)}'{self.pick(['', '', ' | safe'])}) % {self.pick([value, f'({value},)'])} }}}}"
        if choice in (2, 3):
            return f"{{{{ ({value}){self.filter_call(self.pick(list(FILTERS)), 0)} }}}}"
        if choice == 4:
            test = self.pick(list(TESTS))
            return f"{{{{ [{value}] | select('{test}'{', ' + self.pick(VALUES) if TESTS[test] else ''}) | list | length }}}}"
        if choice == 5:
            return f"{{{{ ({value}).{self.pick(ATTRIBUTES)} is defined }}}}{{{{ ({value})['{self.pick(ATTRIBUTES)}'] is callable }}}}"
        if choice == 6:
            return f"{{{{ ({value}) {self.pick(['+', '-', '*', '/', '//', '%', '~', '==', '!=', '<', '>=', 'in', 'not in'])} ({self.pick(VALUES[:4] + VALUES[5:])}) }}}}".replace("1234567)", "12)")
        if choice == 7:
            return f"{{% set v = {value} %}}{{{{ v[{self.pick(['0', '-1', '5', repr('a'), 'none', '1.0', '[1]', '1:', '::-1', '::2', '-2:', repr('a') + ':'])}] }}}}"
        if choice == 8:
            return f"{{{{ strftime_now('%{self.pick(FLAGS)}{self.pick(CODES)}') }}}}"
        return f"{{{{ {self.method_call('str', 1)} }}}}"

    # Statements.
    def tag(self, text):
        before, after = self.pick(["", "", "", "-", "+"]), self.pick(["", "", "", "-", "+"])
        return f"{self.pick(['', '', chr(10), '  ', chr(10) + '  '])}{{%{before} {text} {after}%}}{self.pick(['', '', chr(10), ' '])}"

    def output(self):
        before, after = self.pick(["", "", "", "", "-", "+"]), self.pick(["", "", "", "", "-"])
        return f"{{{{{before} {self.expression('any', self.pick([1, 1, 2, 2, 3]))} {after}}}}}"

    def body(self, count=2):
        self.depth += 1
        names, macros = list(self.names), list(self.macros)
        text = "".join(self.statement() for _ in range(self.rng.randrange(1, count + 1)))
        self.names, self.macros = names, macros
        self.depth -= 1
        return text

    def statement(self):
        if self.depth > 3:
            return self.output()
        return getattr(self, "statement_" + self.pick(["text", "output", "output", "output", "output", "if", "for", "for", "set", "set", "setblock", "macro", "call", "filter", "with", "raw", "comment", "autoescape", "block", "generation", "namespace", "jump", "cycle"]))()

    def statement_text(self):
        return self.pick(["text", " ", "\n", "a\n  b", "<i>", "{", "}", "%}", "\n\n", "  \n", "{ {", "é"])

    def statement_output(self):
        return self.output() + self.pick(["", "|", "\n"])

    def statement_if(self):
        text = self.tag("if " + self.expression("bool", 2)) + self.body()
        if self.chance(0.3):
            text += self.tag("elif " + self.expression("bool", 2)) + self.body()
        if self.chance(0.5):
            text += self.tag("else") + self.body()
        return text + self.tag("endif")

    def statement_for(self):
        target = self.pick(["i", "i", "i", "k, v", "(k, v)", "i, (k, v)"])
        over = self.expression("list", 2) if target == "i" else self.pick(["{'a': 1, 'b': 2}.items()", "[(1, (2, 3))]", "{'b': 1} | dictsort", self.expression("list", 1)])
        recursive = " recursive" if self.chance(0.15) else ""
        text = f"for {target} in {over}" + (" if " + self.expression("bool", 1) if self.chance(0.2) else "") + recursive
        names = list(self.names)
        self.names += [n for n in "ikv" if n in target]
        self.loops += 1
        inside = self.body(3)
        if recursive and self.chance(0.6):
            inside += "{% if i is iterable and i is not string and loop.depth < 3 %}{{ loop(i) }}{% endif %}"
        self.loops -= 1
        self.names = names
        return self.tag(text) + inside + (self.tag("else") + self.body() if self.chance(0.3) else "") + self.tag("endfor")

    def new_name(self):
        name = self.pick("pqrst")
        return name

    def statement_set(self):
        if self.chance(0.1):
            text = self.tag("set p, q = " + self.pick(["1, 2", "'ab'", "[3, 'x']", self.expression("list", 1)]))
            self.names += ["p", "q"]
            return text
        name = self.new_name()
        text = self.tag(f"set {name} = {self.expression('any', 3)}")
        self.names.append(name)
        return text

    def statement_setblock(self):
        name = self.new_name()
        filters = self.filter_call(self.pick(["upper", "trim", "length", "replace", "indent", "e"]), 1) if self.chance(0.4) else ""
        text = self.tag(f"set {name}{filters}") + self.body() + self.tag("endset")
        self.names.append(name)
        return text

    def statement_namespace(self):
        text = self.tag(f"set ns = namespace({self.pick(['', 'x=1', 'x=[]', 'a=2, x=3'])})") + self.tag(f"set ns.x = {self.expression('any', 2)}")
        self.names += ["ns.x", "ns"]
        return text

    def statement_macro(self):
        name = self.pick(["m", "mm"])
        signature = self.pick(["", "a", "a, b=2", "a='<', b=a", "b=missing"])
        names, loops = list(self.names), self.loops
        self.names += ["a", "b"] + self.pick([[], ["varargs"], ["kwargs"], ["caller"]])
        self.loops = 0
        inside = self.body() + self.pick(["", "", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller }}", "{{ caller(1) }}"])
        self.names, self.loops = names, loops
        text = self.tag(f"macro {name}({signature})") + inside + self.tag("endmacro")
        self.macros.append(name)
        return text + f"{{{{ {name}({self.call_arguments(1)}) }}}}"

    def statement_call(self):
        if not self.macros:
            return self.statement_macro()
        loops, self.loops = self.loops, 0
        text = self.tag(f"call{self.pick(['', '', '(u)', '(u, w=1)'])} {self.pick(self.macros)}({self.call_arguments(1)})") + self.body() + self.tag("endcall")
        self.loops = loops
        return text

    def statement_filter(self):
        loops, self.loops = self.loops, 0
        text = self.tag("filter" + self.filter_call(self.pick(["upper", "trim", "title", "replace", "indent", "e", "safe", "wordwrap", "striptags", "truncate", "string", "length"]), 1).replace(" |", "", 1)) + self.body() + self.tag("endfilter")
        self.loops = loops
        return text

    def statement_with(self):
        names = list(self.names)
        text = self.tag(self.pick(["with", f"with w = {self.expression('any', 2)}", f"with w = 1, p = {self.expression('any', 1)}"]))
        self.names.append("w")
        text += self.body() + self.tag("endwith")
        self.names = names
        return text

    def statement_raw(self):
        return self.pick(["{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {% if %} {%- endraw -%}", "  {% raw %}\n {{ x }}\n  {% endraw %}\n"])

    def statement_comment(self):
        return self.pick(["{# c #}", "{#- c -#}", "\n  {# c\n #}\n", "{#+ {{ x }} #}"])

    def statement_autoescape(self):
        loops, self.loops = self.loops, 0
        text = self.tag("autoescape " + self.pick(["true"] * 8 + ["false", "1", "''", "messages"])) + self.body(3) + self.tag("endautoescape")
        self.loops = loops
        return text

    def statement_block(self):
        self.blocks += 1
        name = f"b{self.blocks if self.chance(0.97) else 1}"
        loops, self.loops = self.loops, 0
        text = self.tag(f"block {name}{self.pick(['', '', ' scoped'])}") + self.body() + self.tag("endblock" + self.pick(["", " " + name]))
        self.loops = loops
        return text

    def statement_generation(self):
        loops, self.loops = self.loops, 0
        text = self.tag("generation") + self.body() + self.tag("endgeneration")
        self.loops = loops
        return text

    def statement_jump(self):
        if not self.loops:
            return self.output()
        return self.tag(f"if {self.expression('bool', 1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif")

    def statement_cycle(self):
        if self.loops and self.chance(0.7):
            return "{{ " + self.pick(["loop.cycle('x', 'y')", "loop.changed(i)", "loop | length", "loop", "loop.cycle()"]) + " }}"
        return self.pick(["{% set c = cycler('x', 1, none) %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.pos }}", "{% set j = joiner() %}{{ j() }}x{{ j() }}{{ j() }}", "{% set j = joiner(1) %}{{ j() }}{{ j.sep }}{{ j.used }}"])

    def template(self):
        if self.chance(0.04):
            pieces = ["{{", "}}", "{%", "%}", "{#", "#}", "-", "+", " ", "\n", "if", "endif", "for", "in", "x", "1", "'a'", "(", ")", "[", "]", ".", "|", "upper", "set", "=", "raw", "endraw", "else", "is", "defined", ",", "not", "~", ":", "{", "}", "1.5", "**", "true"]
            return "".join(self.pick(pieces) for _ in range(self.rng.randrange(3, 14)))
        if self.chance(0.25):
            return self.probe()
        if self.chance(0.45):
            return self.output()
        text = "".join(self.statement() for _ in range(self.rng.randrange(1, 5)))
        return text + self.pick(["", "\n"])
