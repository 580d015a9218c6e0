module coracle.dev/tests/holder

go 1.26
