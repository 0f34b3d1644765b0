"""Whole numbers in text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.numbers import INT32_MAX, INT64_MAX, integer, whole_number


@given(st.integers(0, INT64_MAX))
def test_numbers_are_read_as_they_are_written(number):
    assert whole_number(str(number)) == number
    assert whole_number(f"{number:020}") == number
    assert integer(str(number)) == number
    assert integer(str(-number)) == -number


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "-1", "+1", "1_0", "1.0", "²", "٣", "x", "9" * 20, "0" * 21, "9" * 5000],
)
def test_what_is_no_such_number_is_none(text):
    assert whole_number(text) is None
    if text != "-1":
        assert integer(text) is None
        assert integer(f"-{text}") is None


@given(st.text())
def test_no_text_raises(text):
    assert whole_number(text) is None or text.isdigit()
    number = integer(text)
    assert number is None or number == int(text)


def test_the_most_that_is_allowed():
    assert whole_number("2147483647", INT32_MAX) == INT32_MAX
    assert whole_number("2147483648", INT32_MAX) is None
