"""All endpoints of the API, from the rooms that answer them. Another room joins by a line here."""

from alipes.web.endpoints import Endpoint, House


def endpoints(_house: House) -> tuple[Endpoint, ...]:
    return ()
