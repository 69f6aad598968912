"""The Web API of the loopback Slack: its methods and their errors. No sockets."""

import json
from collections.abc import Callable
from typing import Any

from tests.world.slack_sockets import SocketMode
from tests.world.slack_state import HISTORY, TEAM, Channel, PostedMessage, SlackState

LONGEST, CHANGED = 40_000, 4000
"""Maximum characters of a new message, and of an edit."""
SCOPES = {
    "chat.postMessage": "chat:write", "chat.update": "chat:write", "chat.delete": "chat:write",
    "users.info": "users:read", "reactions.add": "reactions:write", "reactions.remove": "reactions:write",
    "files.getUploadURLExternal": "files:write", "files.completeUploadExternal": "files:write",
    "files.delete": "files:write", "files.info": "files:read", "conversations.open": "im:write",
}  # fmt: skip
READS = {"im": "im:read", "mpim": "mpim:read", "public_channel": "channels:read", "private_channel": "groups:read"}
KINDS = {"im": "im", "mpim": "mpim", "public_channel": "channel", "private_channel": "group"}
Args = dict[str, Any]


class ApiError(Exception):
    """An error response of Slack."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.body = {"ok": False, "error": error, **more}


class WebApi:
    """Handles calls on the state, and sends the changes to the connections, within the manifest's scopes."""

    def __init__(self, world: SlackState, board: SocketMode, manifest: dict[str, Any]) -> None:
        self.world, self.board = world, board
        self.scopes = set(manifest["oauth_config"]["scopes"]["bot"])
        self.events = set(manifest["settings"]["event_subscriptions"]["bot_events"])
        self.forbidden: set[str] = set()
        """Channels where the bot may not write."""
        self.page = 1000
        """Maximum messages per page."""
        self._methods: dict[str, Callable[[Args], Args]] = {
            "auth.test": self._auth,
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "conversations.open": self._open,
            "users.conversations": self._conversations,
            "users.info": self._user,
            "reactions.add": self._react,
            "reactions.remove": self._unreact,
            "files.getUploadURLExternal": self._upload,
            "files.completeUploadExternal": self._complete,
            "files.info": self._file,
            "files.delete": self._delete_file,
        }

    def __call__(self, method: str, args: Args) -> Args:
        if method not in self._methods:
            raise ApiError("unknown_method")
        self._need(SCOPES.get(method, ""))
        return {"ok": True, **self._methods[method](args)}

    def _need(self, scope: str) -> None:
        if scope and scope not in self.scopes:
            raise ApiError("missing_scope", needed=scope, provided=",".join(sorted(self.scopes)))

    def _auth(self, _: Args) -> Args:
        return {
            "url": f"{self.world.root}/", "team": "The Guild", "user": "alipes", "team_id": TEAM,
            "user_id": self.world.me.id, "bot_id": "B0ALIPES",
        }  # fmt: skip

    def _channel(self, args: Args, *, writes: bool = False) -> Channel:
        id = args.get("channel") or args.get("channel_id") or ""
        if id in self.world.people:
            return self.world.direct(id)
        if id not in self.world.channels:
            raise ApiError("channel_not_found")
        channel = self.world.channels[id]
        if writes and channel.archived:
            raise ApiError("is_archived")
        if not channel.member or id in self.forbidden:
            raise ApiError("not_in_channel")
        return channel

    def _mine(self, args: Args, verb: str) -> PostedMessage:
        post = self.world.posts.get((self._channel(args).id, args.get("ts", "")))
        if post is None or post.deleted:
            raise ApiError("message_not_found")
        if post.user != self.world.me.id:
            raise ApiError(f"cant_{verb}_message")
        return post

    def _post(self, args: Args) -> Args:
        channel = self._channel(args, writes=True)
        text = self._text(args, LONGEST)
        if (note := args.get("metadata")) is not None:
            assert set(note) == {"event_type", "event_payload"}, note
        thread, broadcast = args.get("thread_ts", ""), bool(args.get("reply_broadcast"))
        assert not (broadcast and not thread), "what is in no thread cannot be shown outside of it"
        root = self.world.posts.get((channel.id, thread))
        if thread and (root is None or root.deleted):
            raise ApiError("thread_not_found")
        post = self.world.post(
            channel.id,
            self.world.me.id,
            text,
            thread=thread,
            broadcast=broadcast,
            blocks=checked(args),
            metadata=note,
            marked=args.get("mrkdwn", True),
        )
        self.tell(post)
        return {"channel": channel.id, "ts": post.ts, "message": self.world.message(post)}

    def _text(self, args: Args, longest: int) -> str:
        text = args.get("text") or ""
        if not text.strip():
            raise ApiError("no_text")
        if len(text) > longest:
            raise ApiError("msg_too_long")
        return str(text)

    def _update(self, args: Args) -> Args:
        post = self._mine(args, "update")
        text = self._text(args, CHANGED)
        if "blocks" in args:
            post.blocks = checked(args)
        self.change(post, text)
        return {"channel": post.channel, "ts": post.ts, "text": text}

    def _delete(self, args: Args) -> Args:
        post = self._mine(args, "delete")
        post.deleted = True
        return {"channel": post.channel, "ts": post.ts}

    def _history(self, args: Args) -> Args:
        channel = self._channel(args)
        self._need(HISTORY[channel.kind])
        found = [each for each in self.world.in_place(channel.id) if _within(each, args)]
        return self._paged(list(reversed(found)), "messages", args)

    def _replies(self, args: Args) -> Args:
        channel = self._channel(args)
        self._need(HISTORY[channel.kind])
        root = self.world.posts.get((channel.id, args["ts"]))
        if root is None:
            raise ApiError("thread_not_found")
        found = [each for each in self.world.in_place(channel.id, args["ts"]) if _within(each, args)]
        return self._paged([root, *found], "messages", args)

    def _paged(self, found: list[PostedMessage], name: str, args: Args) -> Args:
        start, size = int(args.get("cursor") or 0), min(int(args.get("limit") or 100), self.page)
        metadata = args.get("include_all_metadata") in ("1", True)
        cursor = str(start + size) if start + size < len(found) else ""
        page = [self.world.message(each, metadata=metadata) for each in found[start : start + size]]
        return {name: page, "has_more": bool(cursor), "response_metadata": {"next_cursor": cursor}}

    def _open(self, args: Args) -> Args:
        return {"channel": {"id": self.world.direct(args["users"]).id}}

    def _conversations(self, args: Args) -> Args:
        kinds = args.get("types", "public_channel").split(",")
        for kind in kinds:
            self._need(READS[kind])
        wanted = {KINDS[kind] for kind in kinds}
        here = [each for each in self.world.channels.values() if each.kind in wanted and each.member]
        return {"channels": [self.world.place(each) for each in here], "response_metadata": {"next_cursor": ""}}

    def _user(self, args: Args) -> Args:
        if args["user"] not in self.world.people:
            raise ApiError("user_not_found")
        return {"user": self.world.user(args["user"])}

    def _reacted(self, args: Args) -> tuple[PostedMessage, tuple[str, str]]:
        post = self.world.posts.get((self._channel(args).id, args["timestamp"]))
        if post is None:
            raise ApiError("message_not_found")
        return post, (self.world.me.id, args["name"])

    def _react(self, args: Args) -> Args:
        post, mark = self._reacted(args)
        if mark in post.reactions:
            raise ApiError("already_reacted")
        post.reactions.append(mark)
        post.marks.append(f"+{mark[1]}")
        return {}

    def _unreact(self, args: Args) -> Args:
        post, mark = self._reacted(args)
        if mark not in post.reactions:
            raise ApiError("no_reaction")
        post.reactions.remove(mark)
        post.marks.append(f"-{mark[1]}")
        return {}

    def _upload(self, args: Args) -> Args:
        file = self.world.file(args["filename"], "application/octet-stream", b"")
        return {"upload_url": f"{self.world.root}/upload/v1/{file.id}?size={args['length']}", "file_id": file.id}

    def _complete(self, args: Args) -> Args:
        channel = self._channel(args, writes=True)
        given = json.loads(args["files"])
        files = [self.world.files[each["id"]] for each in given]
        assert all(file.data for file in files), "a file was announced and never brought"
        for file in files:
            file.shared = channel.id
        text, thread = args.get("initial_comment", ""), args.get("thread_ts", "")
        self.tell(self.world.post(channel.id, self.world.me.id, text, thread=thread, files=files))
        return {"files": given}

    def _file(self, args: Args) -> Args:
        if args["file"] not in self.world.files:
            raise ApiError("file_not_found")
        return {"file": self.world.file_json(self.world.files[args["file"]])}

    def _delete_file(self, args: Args) -> Args:
        file = self.world.files.pop(args["file"], None)
        if file is None:
            raise ApiError("file_not_found")
        for post in self.world.posts.values():
            post.deleted = post.deleted or file in post.files
        return {}

    # Events.

    def tell(self, post: PostedMessage) -> None:
        """Send the event of a new message."""
        self._send_event(post, self.world.message(post))

    def change(self, post: PostedMessage, text: str, *, edited: bool = True) -> None:
        """`edited`: by its author; otherwise Slack added something, such as a preview."""
        before = self.world.message(post)
        post.text = text
        if edited:
            post.edited = self.world.ts()
            post.edits.append((float(post.edited), text))
        changed = {"message": self.world.message(post), "previous_message": before, "hidden": True}
        self._send_event(post, {"type": "message", "subtype": "message_changed", "ts": self.world.ts(), **changed})

    def _send_event(self, post: PostedMessage, inside: dict[str, Any]) -> None:
        channel = self.world.channels[post.channel]
        inside |= {"channel": channel.id, "channel_type": channel.kind, "event_ts": inside["ts"]}
        kind = {"im": "im", "mpim": "mpim", "channel": "channels", "group": "groups"}[channel.kind]
        if f"message.{kind}" in self.events and channel.member:
            self.board.send("events_api", self.world.event(inside), key=f"{post.channel}:{post.ts}")
        called = f"<@{self.world.me.id}>" in post.text and post.user != self.world.me.id
        if called and "app_mention" in self.events and inside.get("subtype") != "message_changed":
            mention = {**inside, "type": "app_mention"}
            self.board.send("events_api", self.world.event(mention), key=f"{post.channel}:{post.ts}")


def _within(post: PostedMessage, args: Args) -> bool:
    return post.ts > args.get("oldest", "0") and post.ts < args.get("latest", "9")


def checked(args: Args) -> list[dict[str, Any]]:
    """The blocks of a message, if Slack accepts them."""
    blocks: list[dict[str, Any]] = args.get("blocks") or []
    names = [each["action_id"] for block in blocks for each in block.get("elements", ()) if "action_id" in each]
    for block in blocks:
        match block:
            case {"type": "section", "text": {"type": "plain_text", "text": text}} if 0 < len(text) <= 3000:
                pass
            case {"type": "actions", "elements": elements} if 0 < len(elements) <= 25:
                for each in elements:
                    if len(each["text"]["text"]) > 75 or len(each["value"]) > 2000:
                        raise ApiError("invalid_blocks")
            case {"type": "rich_text", "elements": [_, *_] as parts, **more} if not more:
                _rich(parts)
            case _:
                raise ApiError("invalid_blocks")
    if len(names) != len(set(names)) or len(blocks) > 50:
        raise ApiError("invalid_blocks")
    return blocks


def _rich(parts: list[dict[str, Any]]) -> None:
    """Slack requires exactly these, and nothing empty."""
    kinds = ("rich_text_section", "rich_text_preformatted", "rich_text_quote")
    for part in parts:
        if part.keys() != {"type", "elements"} or part["type"] not in kinds or not part["elements"]:
            raise ApiError("invalid_blocks")
        for each in part["elements"]:
            style = each.get("style", {"bold": True})
            if not style or not style.keys() <= {"bold", "italic", "strike", "code"}:
                raise ApiError("invalid_blocks")
            match {name: value for name, value in each.items() if name != "style"}:
                case {"type": "text", "text": str(text), **more} if text and not more:
                    pass
                case {"type": "link", "url": str(url), **more} if url.startswith("http") and " " not in url:
                    if more and not (more.keys() == {"text"} and more["text"]):
                        raise ApiError("invalid_blocks")
                case _:
                    raise ApiError("invalid_blocks")
