package main

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

func TestWithoutCall(t *testing.T) {
	_, gone := os.Stat("gone.txt")
	_, dir := os.ReadFile(".")
	for _, c := range []struct {
		err  error
		want string
	}{
		{gone, "gone.txt: no such file"},
		{fmt.Errorf("gone.txt: %w", gone), "gone.txt: no such file"},
		{fmt.Errorf("--list: %w\nhint: one path a line", gone), "--list: gone.txt: no such file\nhint: one path a line"},
		{dir, ".: it is a directory"},
		{errors.New("open the window: it is warm"), "open the window: it is warm"},
	} {
		if got := withoutCall(c.err); got != c.want {
			t.Errorf("%q is written as %q, want %q", c.err, got, c.want)
		}
	}
}
