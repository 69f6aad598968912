"""The built-in messengers and their settings; each declares its own in `platforms/NAME/settings.py`."""

from msgspec import Struct

from alipes.config.platforms import MessengerConfig
from alipes.platforms.discord.settings import DiscordConfig
from alipes.platforms.email.settings import EmailConfig
from alipes.platforms.irc.settings import IrcConfig
from alipes.platforms.matrix.settings import MatrixConfig
from alipes.platforms.slack.settings import SlackConfig
from alipes.platforms.telegram.settings import TelegramConfig


class Messengers(Struct, frozen=True):
    """The built-in messengers by name; each is a table at the top level of the file."""

    telegram: TelegramConfig = TelegramConfig()
    discord: DiscordConfig = DiscordConfig()
    slack: SlackConfig = SlackConfig()
    matrix: MatrixConfig = MatrixConfig()
    email: EmailConfig = EmailConfig()
    irc: IrcConfig = IrcConfig()

    def get(self, name: str) -> MessengerConfig:
        found: MessengerConfig = getattr(self, name)
        return found

    @property
    def configured(self) -> dict[str, MessengerConfig]:
        """Those with everything needed to connect."""
        return {name: config for name in MESSENGERS if all((config := self.get(name)).needs.values())}

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each messenger that is only partly set up."""
        partly = {name: self.get(name).needs for name in MESSENGERS}
        return tuple(
            f"{name} is not served: also set {', '.join(key for key, is_set in needs.items() if not is_set)}."
            for name, needs in partly.items()
            if any(needs.values()) and not all(needs.values())
        )


MESSENGERS = Messengers.__struct_fields__
