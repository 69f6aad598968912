"""What things look like: SGR codes and glyphs as values. Whether a screen is dark is the caller's to know."""

from typing import Literal

from msgspec import Struct

Name = Literal["dark", "light", "none"]


class Glyphs(Struct, frozen=True):
    """The few characters that stand for structure."""

    bullets: tuple[str, ...] = ("•", "◦", "▪")
    bar: str = "│"
    rule: str = "─"
    cross: str = "┼"
    fence: str = "──"


ASCII = Glyphs(("*", "-", "+"), "|", "-", "+", "```")


class Theme(Struct, frozen=True):
    """Styles are the codes between `ESC [` and `m`; an empty one leaves text as it is.

    Only the sixteen colours of the palette are used, so the screen keeps the user's own hues.
    """

    headings: tuple[str, ...] = ("",) * 6
    bold: str = ""
    italic: str = ""
    strike: str = ""
    code: str = ""
    link: str = ""
    url: str = ""
    marker: str = ""
    done: str = ""
    faint: str = ""
    tokens: dict[str, str] = {}
    """Styles of code by the name of a Pygments token; a token without one takes its parent's."""
    links: bool = False
    """Links are OSC 8 hyperlinks; otherwise the address is written behind the text."""
    marks: bool = False
    """Where nothing can be styled, the marks of Markdown (`**`, backticks, `#`) stay visible."""
    glyphs: Glyphs = Glyphs()


def make(name: Name, *, links: bool = True, ascii_only: bool = False) -> Theme:
    """The theme `name`. `none` is for NO_COLOR and dumb terminals and sends no escape sequence at all."""
    glyphs = ASCII if ascii_only else Glyphs()
    if name == "none":
        return Theme(marks=True, glyphs=glyphs)
    blue, cyan, yellow, magenta = ("94", "96", "93", "95") if name == "dark" else ("34", "36", "33", "35")
    green, red = ("92", "91") if name == "dark" else ("32", "31")
    return Theme(
        headings=(f"1;4;{blue}", f"1;{blue}", f"1;{cyan}", "1", "1;2", "1;2"),
        bold="1",
        italic="3",
        strike="9",
        code=cyan,
        link=f"4;{blue}",
        url="2",
        marker=blue,
        done=green,
        faint="2",
        tokens={
            "Comment": "2;3",
            "Comment.Preproc": magenta,
            "Keyword": magenta,
            "Keyword.Constant": cyan,
            "Operator.Word": magenta,
            "Name.Builtin": cyan,
            "Name.Class": f"1;{blue}",
            "Name.Decorator": yellow if name == "dark" else magenta,
            "Name.Exception": red,
            "Name.Function": blue,
            "Name.Tag": blue,
            "Name.Attribute": cyan,
            "Name.Variable": cyan,
            "Literal.String": green,
            "Literal.String.Escape": yellow if name == "dark" else magenta,
            "Literal.Number": yellow if name == "dark" else red,
            "Generic.Deleted": red,
            "Generic.Inserted": green,
            "Generic.Heading": "1",
            "Generic.Subheading": magenta,
            "Generic.Prompt": "2",
            "Generic.Error": red,
        },
        links=links,
        glyphs=glyphs,
    )
