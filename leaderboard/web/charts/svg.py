"""Elements of SVG as text. Every attribute and every text is escaped, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape


def element(name: str, /, *children: str | Markup, **attributes: object) -> Markup:
    """An element. A child that is a plain text is escaped; an attribute that is None is left out.

    A trailing underscore of an attribute's name is dropped and the others become hyphens.

    >>> element("text", "<b>", x=1.50, class_="a")
    Markup('<text x="1.5" class="a">&lt;b&gt;</text>')
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(escape(child) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>")


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(escape(value))


def number(value: float) -> str:
    """A coordinate in as few characters as a screen can show.

    >>> number(1.0), number(1.25001), number(-0.001)
    ('1', '1.25', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def path(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """The ``d`` of a line through points.

    >>> path([(0, 1), (2.5, 3)])
    'M0 1L2.5 3'
    """
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) + ("Z" if closed else "")


def picture(width: int, height: int, title: str, description: str, *children: Markup, id: str) -> Markup:
    """A whole picture, which a screen reader reads as its title and its description.

    Args:
        width: of the coordinates; the style sheet sets the size.
        height: of the coordinates.
        title: what it shows, in a few words.
        description: what can be seen in it.
        children: its elements.
        id: no other element of the page begins its id so.
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
