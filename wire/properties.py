"""Java's properties format: `key=value` lines with comments, continuations and escapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wire.errors import DecodeError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE = " \t\f"


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blanks, continued ones joined."""
    pending: str | None = None
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_SPACE)
        if pending is None and (not line or line[0] in "#!"):
            continue
        whole = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = whole[:-1]
            continue
        pending = None
        yield whole
    if pending is not None:
        yield pending


def _split(line: str) -> tuple[str, str]:
    """Raw key and raw value: the key ends at the first unescaped `=`, `:` or blank."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _SPACE:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_SPACE)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        char = text[position : position + 1]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                raise DecodeError(f"malformed escape \\u{digits}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    joined = "".join(out)
    # Characters beyond the basic plane are written as two escapes.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse(text: str) -> dict[str, str]:
    """Keys and values in file order; of a repeated key the last value. DecodeError on a bad \\u."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        values[_unescape(key)] = _unescape(value)
    return values


def _escape(text: str, key: bool) -> str:
    out: list[str] = []
    for position, char in enumerate(text):
        if char == " " and (key or position == 0):
            out.append("\\ ")
        elif char in "\t\n\r\f":
            out.append("\\" + "tnrf"["\t\n\r\f".index(char)])
        elif char in "=:#!\\":
            out.append("\\" + char)
        elif not " " <= char <= "~":
            raw = char.encode("utf-16-be", "surrogatepass").hex().upper()
            out.extend(f"\\u{raw[i : i + 4]}" for i in range(0, len(raw), 4))
        else:
            out.append(char)
    return "".join(out)


def dump(values: Mapping[str, str], comments: tuple[str, ...] = ()) -> str:
    """The text of a properties file, ASCII only, in the mapping's order."""
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(k, True)}={_escape(v, False)}" for k, v in values.items()]
    return "".join(f"{line}\n" for line in lines)
