"""Calls of the Python client that mypy checks. Nothing runs them.

Lines with `type: ignore` must be wrong: mypy reports unused ignores.
"""

from collections.abc import AsyncGenerator, Generator

from tidings_client import AsyncClient, Client, TidingsError
from tidings_client.records import Counts, Event, Item, Receipt, UserView


def sync(client: Client) -> None:
    event: Event = {"type": "Comment", "objects": ["c1"], "to": ["mara"], "except": [42]}
    receipt: Receipt = client.publish(event, key="comment-c1")
    receipts: list[Receipt] = client.publish_many([event, {"type": "A", "objects": 1, "to": 2}])
    user: UserView = client.patch_user("mara", {"name": None, "digest": {"hour": 7}})
    items: Generator[Item, None, None] = client.items("mara", {"state": "unread"})
    polled: Generator[Counts, None, None] = client.poll("mara", on_error=print)
    print(receipt["id"], receipts, user["tz"], next(items)["object"]["title"], next(polled))
    client.mark("mara", "seen", to="c20140419.1")
    client.publish({"type": "A"})  # type: ignore[typeddict-item]
    client.publish({"type": "A", "objects": 1, "two": 2})  # type: ignore[typeddict-unknown-key]
    client.mark("mara", "gone", to="c20140419.1")  # type: ignore[arg-type]
    client.put_user("mara", {"id": "mara"})  # type: ignore[typeddict-unknown-key]
    client.count()  # type: ignore[call-arg]


async def both(client: AsyncClient) -> None:
    receipt: Receipt = await client.publish({"type": "A", "objects": 1, "near": {
        "point": (2.35, 48.85), "km": 5}})
    items: AsyncGenerator[Item, None] = client.items("mara")
    async for item in items:
        print(item["state"], receipt["duplicate"])
    try:
        wrong: Receipt = client.publish({"type": "A", "objects": 1})  # type: ignore[assignment]
    except TidingsError as error:
        print(error.code, error.status or 0, error.retry_after, error.unsent, wrong)


Client("https://news.example.org", "key", deadline=5).close()
AsyncClient("https://news.example.org", lambda: "token")
Client("https://news.example.org")  # type: ignore[call-arg]
