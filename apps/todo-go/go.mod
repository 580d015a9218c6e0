module coracle/todo-go

go 1.22
