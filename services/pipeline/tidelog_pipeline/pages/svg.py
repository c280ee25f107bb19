"""Elements of SVG, which browsers draw without a library. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from markupsafe import Markup, escape


def element(name: str, *content: str, **attributes: str | float | None) -> Markup:
    """Returns an element. Texts are escaped; other elements are not.

    - `attributes`: `class_` is the attribute `class`, `aria_label` is `aria-label`. An attribute
      that is None is left out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{Markup('').join(content)}</{name}>")


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 1):.10g}"


def picture(width: float, height: float, label: str, *content: str) -> Markup:
    size = f"0 0 {width:g} {height:g}"
    lines = Markup("\n").join(content)
    return element("svg", lines, viewBox=size, role="img", aria_label=label)


def text(x: float, y: float, *content: str, style: str | None = None) -> Markup:
    return element("text", *content, x=x, y=y, class_=style)


def line(x1: float, y1: float, x2: float, y2: float, style: str, *, tooltip: str = "") -> Markup:
    return element("line", *_tooltip(tooltip), x1=x1, x2=x2, y1=y1, y2=y2, class_=style)


def bar(
    x: float,
    y: float,
    width: float,
    height: float,
    tooltip: str,
    *,
    style: str | None = None,
    colour: str | None = None,
) -> Markup:
    shape = {"x": x, "y": y, "width": width, "height": height}
    return element("rect", *_tooltip(tooltip), **shape, fill=colour, class_=style)


def polyline(points: Iterable[tuple[float, float]], colour: str, tooltip: str) -> Markup:
    places = " ".join(f"{_value(x)},{_value(y)}" for x, y in points)
    return element("polyline", *_tooltip(tooltip), points=places, stroke=colour, fill="none")


def legend(colours: Mapping[str, str]) -> Markup:
    """Returns the names, each in its colour."""
    names = (element("tspan", name, style=f"fill:{colour}") for name, colour in colours.items())
    return Markup(" ").join(names)


def _tooltip(text: str) -> list[Markup]:
    return [element("title", text)] if text else []
