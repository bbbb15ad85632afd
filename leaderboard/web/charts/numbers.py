"""Formats of numbers on pages and in charts."""

from __future__ import annotations

from agents.analysis.statistics import Interval

PLAIN_BELOW = 10_000  # larger FLOPs and parameter counts are written with a power of ten


def count(value: float | int, digits: int = 2) -> str:
    """Format FLOPs or parameters: a small number as it is, a large one with a power of ten.

    >>> count(1234), count(123_456_789), count(9.999e9), count(10**30)
    ('1,234', '1.23e8', '1.00e10', '1.00e30')
    """
    if abs(value) < PLAIN_BELOW:
        return f"{round(value):,}"
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def exact(value: int) -> str:
    """Format a number with all its digits: ``123,456,789``."""
    return f"{value:,}"


def count_interval(interval: Interval) -> tuple[str, str]:
    """Format mean and half width of FLOPs or parameters, with the same power of ten if it suits both.

    The half width of a single value is empty, and that of equal values, too: parameters and FLOPs that do not depend on
    the seed cannot vary.

    >>> count_interval(Interval(1.234e9, 2.5e7, 3)), count_interval(Interval(50.0, 3.2, 3))
    (('1.23e9', '0.03e9'), ('50', '3'))
    >>> count_interval(Interval(1.234e9, 0.0, 3))
    ('1.23e9', '')
    >>> count_interval(Interval(1.234e9, 2.5e5, 3))
    ('1.23e9', '2.5e5')
    """
    mean = count(interval.mean)
    if not interval.half:
        return mean, ""
    _, letter, exponent = mean.partition("e")
    scaled = interval.half / 10.0 ** int(exponent) if letter else 0.0
    if 0.01 <= scaled < 100:
        return mean, f"{scaled:.2f}e{exponent}"
    return mean, count(interval.half, 1)


def decimals(interval: Interval, digits: int) -> tuple[str, str]:
    """Format mean and half width with a number of decimals. The half width of a single value is empty.

    >>> decimals(Interval(1.234, 0.5, 3), 2)
    ('1.23', '0.50')
    """
    return f"{interval.mean:,.{digits}f}", "" if interval.half is None else f"{interval.half:,.{digits}f}"


def signed(pair: tuple[str, str]) -> tuple[str, str]:
    """Add the sign to a formatted mean, for a difference.

    >>> signed(("1.23", "0.50")), signed(("-1.23", "0.50"))
    (('+1.23', '0.50'), ('−1.23', '0.50'))
    """
    mean, half = pair
    return (f"−{mean[1:]}" if mean.startswith("-") else f"+{mean}"), half


def duration(seconds: float) -> str:
    """Format wall-clock time in a suitable unit.

    >>> duration(0.25), duration(75), duration(5400), duration(200_000)
    ('0.2 s', '1 min 15 s', '1 h 30 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    for large, small, unit, rest in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            left = whole % large // small
            return f"{whole // large} {unit}" + (f" {left} {rest}" if left else "")
    return f"{whole} s"


def tick(value: float) -> str:
    """Format the label of a linear axis with the necessary digits.

    >>> tick(0.25), tick(20.0), tick(1500.0), tick(2e6)
    ('0.25', '20', '1,500', '2e6')
    """
    if abs(value) >= PLAIN_BELOW:
        mantissa, _, exponent = f"{value:.3g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else count(value)
    return f"{value:,.10g}"


def power(exponent: int) -> str:
    """Format a power of ten for a chart.

    >>> power(12), power(-3)
    ('10¹²', '10⁻³')
    """
    return "10" + str(exponent).translate(_RAISED)


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
