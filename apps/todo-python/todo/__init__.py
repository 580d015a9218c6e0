# SPDX-License-Identifier: Apache-2.0
"""The to-do REST service of Goethals et al. 2018, without a web framework.

Content and answers of the service; with_flask and with_falcon add the routes.
Neither knows of the kernel it runs on.
"""

import json

#: The fixed content of the service.
TODOS = [
    {"name": name, "completed": False, "due": "0001-01-01T00:00:00Z"}
    for name in (
        "Write presentation",
        "Host meetup",
        "Run tests",
        "Stand in traffic",
        "Learn Python",
    )
]

#: Bound of the body of POST /sort, bytes: the sort is quadratic.
MAX_SORT_BYTES = 1 << 20

JSON_TYPE = "application/json; charset=UTF-8"
TEXT_TYPE = "text/plain; charset=utf-8"


class BadRequestError(Exception):
    """What the client sent cannot be used; the message says why."""


def compact(value):
    """The answer's body: compact JSON and a newline."""
    return json.dumps(value, separators=(",", ":")) + "\n"


def find(text):
    """The entry with the number in `text`, as (content type, body).

    As published, what is not a number means 0, and an unknown number is
    reported with status 200.
    """
    try:
        index = int(text)
    except ValueError:
        index = 0
    if 0 <= index < len(TODOS):
        return JSON_TYPE, compact(TODOS[index])
    return TEXT_TYPE, f"Todo not found: {index}"


def sort_body(body):
    """The JSON array of integers in `body`, sorted; BadRequestError if it is none."""
    try:
        numbers = json.loads(body)
    except ValueError as error:
        raise BadRequestError(f"want a JSON array of integers: {error}") from error
    if not isinstance(numbers, list) or not all(type(n) is int for n in numbers):
        raise BadRequestError("want a JSON array of integers")
    bubble_sort(numbers)
    return compact(numbers)


def bubble_sort(numbers):
    """Sorts in place: a double loop without an early exit."""
    for end in range(len(numbers) - 1, 0, -1):
        for i in range(end):
            if numbers[i] > numbers[i + 1]:
                numbers[i], numbers[i + 1] = numbers[i + 1], numbers[i]
