# SPDX-License-Identifier: Apache-2.0
"""Both forms of the service give the answers of the published one."""

import io
import json
import unittest

import todo
from todo import with_falcon, with_flask


def ask(app, method, path, body=b""):
    """Asks a WSGI application; (status, content type, body)."""
    answer = {}

    def start_response(status, headers, _exc_info=None):
        answer["status"] = int(status.split()[0])
        answer["type"] = dict((k.lower(), v) for k, v in headers).get("content-type")

    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "8080",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.url_scheme": "http",
        "wsgi.version": (1, 0),
    }
    parts = app(environ, start_response)
    text = b"".join(parts).decode()
    if hasattr(parts, "close"):
        parts.close()
    return answer["status"], answer["type"], text


class Service:
    app = None

    def test_index(self):
        self.assertEqual(ask(self.app, "GET", "/"), (200, todo.TEXT_TYPE, "Welcome!\n"))

    def test_all(self):
        status, content_type, body = ask(self.app, "GET", "/todos")
        self.assertEqual((status, content_type), (200, todo.JSON_TYPE))
        self.assertTrue(body.endswith("}]\n"))
        self.assertNotIn(" :", body)
        self.assertEqual(json.loads(body), todo.TODOS)

    def test_one(self):
        for number, name in (("0", "Write presentation"), ("4", "Learn Python"), ("x", "Write presentation")):
            status, _, body = ask(self.app, "GET", f"/todos/{number}")
            self.assertEqual((status, json.loads(body)["name"]), (200, name))

    def test_unknown(self):
        for number in ("5", "-1"):
            answer = ask(self.app, "GET", f"/todos/{number}")
            self.assertEqual(answer, (200, todo.TEXT_TYPE, f"Todo not found: {number}"))

    def test_sort(self):
        self.assertEqual(ask(self.app, "POST", "/sort", b"[3,1,2]"), (200, todo.JSON_TYPE, "[1,2,3]\n"))
        self.assertEqual(ask(self.app, "POST", "/sort", b"[]")[2], "[]\n")

    def test_bad_requests(self):
        for body in (b"", b"{}", b"[1,", b'["a"]', b"[true]"):
            self.assertEqual(ask(self.app, "POST", "/sort", body)[0], 400, body)
        self.assertEqual(ask(self.app, "POST", "/sort", b"1" * (todo.MAX_SORT_BYTES + 1))[0], 413)
        self.assertEqual(ask(self.app, "GET", "/sort")[0], 405)
        self.assertEqual(ask(self.app, "GET", "/nowhere")[0], 404)


class WithFlask(Service, unittest.TestCase):
    app = with_flask.app


class WithFalcon(Service, unittest.TestCase):
    app = with_falcon.app


if __name__ == "__main__":
    unittest.main()
