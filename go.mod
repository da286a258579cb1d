module gollama

go 1.26.0
