# SPDX-License-Identifier: Apache-2.0
"""The service with Flask: `gunicorn todo.with_flask:app`."""

from flask import Flask, Response, abort, request

import todo

app = Flask("todo", static_folder=None)


@app.get("/")
def index():
    return Response("Welcome!\n", content_type=todo.TEXT_TYPE)


@app.get("/todos")
def all_todos():
    return Response(todo.compact(todo.TODOS), content_type=todo.JSON_TYPE)


@app.get("/todos/<number>")
def one_todo(number):
    content_type, body = todo.find(number)
    return Response(body, content_type=content_type)


@app.post("/sort")
def sort():
    body = request.stream.read(todo.MAX_SORT_BYTES + 1)
    if len(body) > todo.MAX_SORT_BYTES:
        abort(413)
    return Response(todo.sort_body(body), content_type=todo.JSON_TYPE)


@app.errorhandler(todo.BadRequestError)
def bad_request(error):
    return Response(f"{error}\n", status=400, content_type=todo.TEXT_TYPE)
