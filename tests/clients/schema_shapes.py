"""Forty shapes of data as pydantic models, each with a document that matches and one that does not."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field


class Colour(StrEnum):
    red, green = "red", "green"


class Level(IntEnum):
    low, high = 1, 2


class Point(BaseModel):
    x: float
    y: float


class Address(BaseModel):
    street: str
    city: str
    zip: str | None


class Person(BaseModel):
    name: str
    age: int
    address: Address


class Node(BaseModel):
    name: str
    children: list[Node]


class Chain(BaseModel):
    value: int
    next: Chain | None


class Leaf(BaseModel):
    kind: Literal["leaf"]
    value: int


class Sum(BaseModel):
    kind: Literal["sum"]
    left: Expression
    right: Expression


Expression = Annotated[Leaf | Sum, Field(discriminator="kind")]


class Formula(BaseModel):
    root: Expression


class Cat(BaseModel):
    type: Literal["cat"]
    lives: int


class Dog(BaseModel):
    type: Literal["dog"]
    barks: bool


class Owner(BaseModel):
    pet: Cat | Dog


class Owners(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="type")]]


class Husband(BaseModel):
    name: str
    wife: Wife | None


class Wife(BaseModel):
    name: str
    husband: Husband | None


class Described(BaseModel):
    """A model with words about it."""

    title: str = Field(description="A short title, without quotes.")
    tags: list[str] = Field(description="At least one.", min_length=1)


class Aliased(BaseModel):
    from_: str = Field(alias="from")
    unit_price: float = Field(alias="unitPrice")


def model(**fields: Any) -> type[BaseModel]:
    """A model with these fields, named by its caller."""
    return type("Answer", (BaseModel,), {"__annotations__": fields, "__module__": __name__})


_CAT, _DOG = {"type": "cat", "lives": 9}, {"type": "dog", "barks": True}
_ANN = {"name": "Ann", "age": 40, "address": {"street": "A 1", "city": "Rome", "zip": None}}
_LEAF = {"kind": "leaf", "value": 1}
_TREE = {"name": "a", "children": [{"name": "b", "children": [{"name": "c", "children": []}]}]}
_ID = "5f0ac0ee-63ae-4a4c-8a8e-6f9b1c2d3e4f"

SHAPES: tuple[tuple[type[BaseModel], dict[str, Any], Any], ...] = (
    (model(text=str), {"text": "a"}, {"text": 1}),
    (model(count=int), {"count": 1}, {"count": "one"}),
    (model(share=float), {"share": 0.5}, {"share": "half"}),
    (model(right=bool), {"right": True}, {"right": "yes"}),
    (model(text=str, count=int), {"text": "a", "count": 2}, {"text": "a"}),
    (model(nothing=type(None)), {"nothing": None}, {"nothing": 0}),
    (model(words=list[str]), {"words": ["a", "b"]}, {"words": "a, b"}),
    (model(grid=list[list[int]]), {"grid": [[1, 2], [3]]}, {"grid": [[1, "2"]]}),
    (model(maybe=str | None), {"maybe": None}, {"maybe": 1}),
    (model(either=int | str), {"either": "a"}, {"either": [1]}),
    (model(many=list[int | str | None]), {"many": [1, "a", None]}, {"many": [True, {}]}),
    (model(colour=Colour), {"colour": "red"}, {"colour": "blue"}),
    (model(level=Level), {"level": 2}, {"level": 3}),
    (model(word=Literal["yes", "no"]), {"word": "no"}, {"word": "maybe"}),
    (model(only=Literal["one"]), {"only": "one"}, {"only": "two"}),
    (model(colours=list[Colour]), {"colours": ["red", "green"]}, {"colours": ["red", "blue"]}),
    (model(day=date), {"day": "2026-02-28"}, {"day": "2026-02-30"}),
    (model(at=datetime), {"at": "2026-02-28T10:00:00Z"}, {"at": "tomorrow"}),
    (model(at=time), {"at": "10:00:00"}, {"at": "ten"}),
    (model(id=UUID), {"id": _ID}, {"id": "1"}),
    (model(days=list[date]), {"days": ["2026-01-01", "2026-12-31"]}, {"days": ["2026-01-01", "2026-13-31"]}),
    (model(birthday=date | None), {"birthday": None}, {"birthday": "unknown"}),
    (Point, {"x": 1.0, "y": 2.5}, {"x": 1.0}),
    (Person, _ANN, {**_ANN, "address": {"street": "A 1", "city": "Rome"}}),
    (model(people=list[Person]), {"people": [_ANN, _ANN]}, {"people": [_ANN, {**_ANN, "age": "40"}]}),
    (model(line=tuple[Point, Point]), {"line": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}, {"line": [1, 2]}),
    (model(home=Address | None, work=Address), {"home": None, "work": _ANN["address"]}, {"home": None, "work": None}),
    (Node, _TREE, {"name": "a", "children": [{"name": "b", "children": [{"name": 3, "children": []}]}]}),
    (Chain, {"value": 1, "next": {"value": 2, "next": None}}, {"value": 1, "next": {"value": "2", "next": None}}),
    (Formula, {"root": {"kind": "sum", "left": _LEAF, "right": _LEAF}}, {"root": {"kind": "sum", "left": _LEAF}}),
    (Owner, {"pet": _DOG}, {"pet": {"type": "dog", "lives": 9}}),
    (Owners, {"pets": [_CAT, _DOG]}, {"pets": [_CAT, {"type": "cow"}]}),
    (
        Husband,
        {"name": "a", "wife": {"name": "b", "husband": {"name": "c", "wife": None}}},
        {"name": "a", "wife": {"name": "b"}},
    ),
    (Described, {"title": "a", "tags": ["b"]}, {"title": "a", "tags": []}),
    (Aliased, {"from": "a", "unitPrice": 1.5}, {"from_": "a", "unit_price": 1.5}),
    (
        model(share=Annotated[float, Field(ge=0, le=1)], name=Annotated[str, Field(max_length=3)]),
        {"share": 0.25, "name": "abc"},
        {"share": 1.5, "name": "abc"},
    ),
    (model(code=Annotated[str, Field(pattern=r"^[A-Z]{2}\d+$")]), {"code": "AB12"}, {"code": "ab12"}),
    (model(price=Decimal), {"price": "1.50"}, {"price": True}),
    (model(took=timedelta, tree=Node, dog=Dog), {"took": "PT3S", "tree": _TREE, "dog": _DOG}, {"took": "PT3S"}),
    (
        model(steps=list[model(say=str, then=Literal["go", "stop"])], result=Owner | None, deep=list[list[Chain]]),
        {"steps": [{"say": "a", "then": "go"}], "result": None, "deep": [[{"value": 1, "next": None}]]},
        {"steps": [{"say": "a", "then": "wait"}], "result": None, "deep": []},
    ),
)
