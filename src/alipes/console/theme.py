"""Themes of rendered Markdown: SGR codes and symbols."""

from typing import Literal

from msgspec import Struct

ThemeName = Literal["dark", "light", "none"]


class Glyphs(Struct, frozen=True):
    """Characters for bullets, lines and fences."""

    bullets: tuple[str, ...] = ("•", "◦", "▪")
    bar: str = "│"
    rule: str = "─"
    cross: str = "┼"
    fence: str = "──"


ASCII = Glyphs(("*", "-", "+"), "|", "-", "+", "```")


class Theme(Struct, frozen=True):
    """Styles are SGR codes (between `ESC [` and `m`); an empty one means no style.

    Only the sixteen palette colours are used, so that the user's own colours apply.
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
    """Code styles by Pygments token name; a token without a style uses its parent's."""
    links: bool = False
    """Use OSC 8 hyperlinks; otherwise the URL is printed after the text."""
    marks: bool = False
    """Keep Markdown marks (`**`, backticks, `#`), for output without styles."""
    glyphs: Glyphs = Glyphs()


def make_theme(name: ThemeName, *, links: bool = True, ascii_only: bool = False) -> Theme:
    """The theme `name`. `none` is for NO_COLOR and uses no escape sequences."""
    glyphs = ASCII if ascii_only else Glyphs()
    if name == "none":
        return Theme(marks=True, glyphs=glyphs)
    blue, cyan, yellow, magenta = ("94", "96", "93", "95") if name == "dark" else ("34", "36", "33", "35")
    green, red = ("92", "91") if name == "dark" else ("32", "31")
    by_style = {
        "1": "Generic.Heading",
        "2": "Generic.Prompt",
        "2;3": "Comment",
        f"1;{blue}": "Name.Class",
        blue: "Name.Function Name.Tag",
        cyan: "Keyword.Constant Name.Builtin Name.Attribute Name.Variable",
        green: "Literal.String Generic.Inserted",
        magenta: "Comment.Preproc Keyword Operator.Word Generic.Subheading",
        red: "Name.Exception Generic.Deleted Generic.Error",
    }
    tokens = {token: style for style, names in by_style.items() for token in names.split()}
    tokens |= dict.fromkeys(("Name.Decorator", "Literal.String.Escape"), yellow if name == "dark" else magenta)
    tokens["Literal.Number"] = yellow if name == "dark" else red
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
        tokens=tokens,
        links=links,
        glyphs=glyphs,
    )
