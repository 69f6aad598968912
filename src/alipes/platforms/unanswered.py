"""A call that no messenger answered, in our words. What it answers to others is not judged here."""

from alipes.kernel.errors import DeliveryError


def unanswered(who: str, doing: str, why: str, *, sent: bool, late: bool) -> DeliveryError:
    """`uncertain` where it was sent: nobody said what became of it. `who` as within a sentence."""
    begins = f"{who[:1].upper()}{who[1:]}"
    if not sent:
        return DeliveryError(f"{begins} cannot be reached ({doing}: {why}).")
    if late:
        return DeliveryError(f"{begins} did not answer in time ({doing}).", uncertain=True)
    return DeliveryError(f"The connection to {who} broke while {doing} ({why}).", uncertain=True)


def brief(error: BaseException) -> str:
    """Its kind, and what it says if anything."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
