module coracle.dev/tests/go_cgo

go 1.26
