module coracle.dev/tests/go_threaded

go 1.26
