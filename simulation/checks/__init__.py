"""Rules that hold in every run, each judged from outside a node."""

from __future__ import annotations


class Violation(AssertionError):
    """A rule is broken. `rule` names it in a few words, `detail` says where and how."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


def require(holds: bool, rule: str, *details: object) -> None:
    """Raises Violation unless `holds`."""
    if not holds:
        raise Violation(rule, ", ".join(str(detail) for detail in details))
