"""SVG elements as text. Every attribute and every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape


def element(name: str, /, *children: str | Markup, **attributes: object) -> Markup:
    """Return an element. A child that is a plain string is escaped. Attributes that are None are left out.

    A trailing underscore of an attribute's name is removed, and other underscores become hyphens.

    >>> element("text", "<b>", x=1.50, class_="a")
    Markup('<text x="1.5" class="a">&lt;b&gt;</text>')
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{_value(value)}"' for key, value in given.items())
    inner = "".join(escape(child) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>")


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(escape(value))


def number(value: float) -> str:
    """Format a coordinate with at most two decimals.

    >>> number(1.0), number(1.25001), number(-0.001)
    ('1', '1.25', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def path(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """Return the ``d`` attribute of a line through points.

    >>> path([(0, 1), (2.5, 3)])
    'M0 1L2.5 3'
    """
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) + ("Z" if closed else "")


def chart(width: int, height: int, title: str, description: str, *children: Markup, id: str) -> Markup:
    """Return a chart. A screen reader reads its title and its description.

    Width and height are those of the view box; the style sheet sets the size. The id must be unique on the page.
    """
    return element(
        "svg",
        element("title", title, id=f"{id}-title"),
        element("desc", description, id=f"{id}-description"),
        *children,
        viewBox=f"0 0 {width} {height}",
        class_="chart",
        role="img",
        aria_labelledby=f"{id}-title",
        aria_describedby=f"{id}-description",
    )
