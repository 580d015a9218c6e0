# SPDX-License-Identifier: Apache-2.0
"""The service with Falcon: `gunicorn todo.with_falcon:app`."""

import falcon

import todo


class Index:
    """`/`"""

    def on_get(self, _request, response):
        response.content_type = todo.TEXT_TYPE
        response.text = "Welcome!\n"


class Todos:
    """`/todos`"""

    def on_get(self, _request, response):
        response.content_type = todo.JSON_TYPE
        response.text = todo.compact(todo.TODOS)


class Todo:
    """`/todos/{number}`"""

    def on_get(self, _request, response, number):
        response.content_type, response.text = todo.find(number)


class Sort:
    """`/sort`"""

    def on_post(self, request, response):
        if (request.content_length or 0) > todo.MAX_SORT_BYTES:
            raise falcon.HTTPPayloadTooLarge
        response.content_type = todo.JSON_TYPE
        response.text = todo.sort_body(request.bounded_stream.read())


def bad_request(_request, response, error, _params):
    """Reports what was wrong with the request."""
    response.status = falcon.HTTP_400
    response.content_type = todo.TEXT_TYPE
    response.text = f"{error}\n"


app = falcon.App()
app.add_route("/", Index())
app.add_route("/todos", Todos())
app.add_route("/todos/{number}", Todo())
app.add_route("/sort", Sort())
app.add_error_handler(todo.BadRequestError, bad_request)
